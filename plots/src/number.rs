//! Formats numbers for people.

/// Three significant digits, never an exponent.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    // Rounding errors are nothing.
    let value = if value.abs() < 5e-10 { 0.0 } else { value };
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (2 - magnitude).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// 0.934 as `93.4 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// -0.25 as `−25.0 %`, with a real minus sign.
pub fn change(relative: f64) -> String {
    if !relative.is_finite() {
        return "–".into();
    }
    let text = format!("{:.1}", 100.0 * relative.abs());
    let sign = match relative {
        _ if text == "0.0" => "±",
        r if r < 0.0 => "−",
        _ => "+",
    };
    format!("{sign}{text} %")
}

/// A difference of shares in percentage points.
pub fn points(difference: f64) -> String {
    change(difference).replace('%', "points")
}

/// Bytes as `30.2 KiB`.
pub fn kibibytes(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

/// Bytes as `30.2 MB`.
pub fn bytes(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(size, _)| bytes.abs() >= *size);
    unit.map_or_else(|| format!("{bytes:.0} B"), |(size, name)| format!("{} {name}", figure(bytes / size)))
}

/// Seconds as `9 ms`, `12.3 s`, `4.5 min` or `2.1 h`.
pub fn seconds(seconds: f64) -> String {
    if seconds.abs() < 0.1 {
        return format!("{:.0} ms", 1000.0 * seconds);
    }
    let units = [(3600.0, "h"), (60.0, "min")];
    let unit = units.into_iter().find(|(size, _)| seconds.abs() >= *size);
    let (size, name) = unit.unwrap_or((1.0, "s"));
    format!("{} {name}", figure(seconds / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_at_every_size() {
        let cases = [
            (1.2345, "1.23"),
            (0.123_45, "0.123"),
            (0.001_234_5, "0.00123"),
            (123.45, "123"),
            (0.0, "0.00"),
            (1e-17, "0.00"),
            (-0.0, "0.00"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn signs_of_changes() {
        assert_eq!(change(-0.2514), "−25.1 %");
        assert_eq!(change(0.01), "+1.0 %");
        assert_eq!(change(-0.000_01), "±0.0 %");
        assert_eq!(change(f64::INFINITY), "–");
        assert_eq!(points(0.0123), "+1.2 points");
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!([12.0, 3.04e6, 2e9].map(bytes), ["12 B", "3.04 MB", "2.00 GB"]);
        assert_eq!([0.009, 12.34, 90.0, 7200.0].map(seconds), ["9 ms", "12.3 s", "1.50 min", "2.00 h"]);
    }
}
