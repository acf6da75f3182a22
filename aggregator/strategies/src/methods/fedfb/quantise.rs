//! Losses in few bits: `code = floor((clip(x) - lo)/(hi - lo) * (levels - 1) + 0.5)`,
//! `value = lo + code * (hi - lo)/(levels - 1)`.

/// A uniform quantiser.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Quantiser {
    lo: f64,
    hi: f64,
    levels: f64,
}

impl Quantiser {
    /// `2^bits` levels.
    pub fn new([lo, hi]: [f64; 2], bits: u32) -> Self {
        Self { lo, hi, levels: f64::from(bits).exp2() }
    }

    /// Several values share the bits: `floor(2^(bits/values))` levels each.
    pub fn shared([lo, hi]: [f64; 2], bits: u32, values: usize) -> Self {
        let levels = (f64::from(bits) / values.max(1) as f64).exp2();
        // An exact root must not be rounded down.
        Self { lo, hi, levels: (levels * (1.0 + 1e-12)).floor() }
    }

    /// The number of the nearest level.
    pub fn code(&self, value: f64) -> f64 {
        let place = (value.clamp(self.lo, self.hi) - self.lo) / (self.hi - self.lo);
        (place * (self.levels - 1.0) + 0.5).floor()
    }

    /// The value that the receiver decodes. A single level decodes to the middle.
    pub fn value(&self, value: f64) -> f64 {
        if self.levels < 2.0 {
            return (self.lo + self.hi) / 2.0;
        }
        self.lo + self.code(value) * (self.hi - self.lo) / (self.levels - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_numbers() {
        let unit = Quantiser::new([0.0, 1.0], 10);
        assert_eq!(unit.code(0.1234), 126.0);
        assert!((unit.value(0.1234) - 0.1231671554).abs() < 1e-10);
        let wide = Quantiser::new([0.0, 5.0], 10);
        assert_eq!(wide.code(0.1234), 25.0);
        assert!((wide.value(0.1234) - 0.1221896383).abs() < 1e-10);
        assert_eq!((unit.value(-3.0), unit.value(7.0)), (0.0, 1.0));
    }

    #[test]
    fn bits_can_be_shared() {
        let codes = |bits, values| Quantiser::shared([-2.0, 2.0], bits, values).code(2.0) + 1.0;
        assert_eq!([codes(10, 1), codes(10, 2), codes(10, 3), codes(9, 3)], [1024.0, 32.0, 10.0, 8.0]);
        assert_eq!(Quantiser::shared([-2.0, 2.0], 2, 5).value(1.7), 0.0);
        assert_eq!(Quantiser::shared([-2.0, 2.0], 1, 1).value(1.7), 2.0);
    }

    #[test]
    fn values_are_off_by_at_most_half_a_level() {
        let quantiser = Quantiser::new([-2.0, 2.0], 6);
        for number in 0..1000 {
            let value = -2.0 + 0.004 * f64::from(number);
            assert!((quantiser.value(value) - value).abs() <= 2.0 / 63.0 + 1e-12);
        }
    }
}
