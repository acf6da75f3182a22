//! The results of `fairtier model plan`: the exact needs of one tier, and whether it fits.

use std::fmt;

use crate::{
    Graph,
    plan::{
        CompiledPlan, PlanOptions, compile,
        fit::{FitError, Shortage, fit},
    },
};
use common::WidthMask;
use serde::Serialize;

use super::table::{Table, grouped};

/// The arguments.
#[derive(Copy, Clone, Debug)]
pub struct PlanRequest {
    pub options: PlanOptions,
    pub ram: Option<u64>,
    pub flash: Option<u64>,
    /// Also list every buffer.
    pub buffers: bool,
    /// Also state the work of a round: training samples of the device, and epochs.
    pub round: Option<(u32, u16)>,
}

#[derive(Debug, Serialize)]
pub struct PlanReport {
    name: String,
    widths: Vec<u32>,
    parameters: usize,
    macs_per_sample: u64,
    batch: u16,
    inference_bytes: u64,
    /// As asked.
    training_bytes: u64,
    flash_bytes: u64,
    ram: Option<RamFit>,
    flash: Option<FlashFit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffers: Vec<BufferRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<RoundWork>,
}

/// One of this many training samples is kept for validation where a fairness target is set.
const VALIDATED: u64 = 5;

/// The work of a device in a round: the loss of the received model on its samples, then training. A training pass counts as
/// three forward passes.
#[derive(Debug, Serialize)]
struct RoundWork {
    samples: u32,
    epochs: u16,
    macs: u64,
    /// With a fairness target, which trains on four fifths of the samples.
    target_macs: u64,
    /// Of these, for the forward pass over the validation samples.
    validation_macs: u64,
}

impl RoundWork {
    fn new(samples: u32, epochs: u16, macs_per_sample: u64) -> Self {
        let all = u64::from(samples);
        let held = all / VALIDATED;
        let passes = 1 + 3 * u64::from(epochs);
        Self {
            samples,
            epochs,
            macs: macs_per_sample.saturating_mul(passes * all),
            target_macs: macs_per_sample.saturating_mul(passes * (all - held) + held),
            validation_macs: macs_per_sample.saturating_mul(held),
        }
    }

    /// Validation as a share of the round with a target.
    fn share(&self) -> f64 {
        self.validation_macs as f64 / self.target_macs.max(1) as f64
    }
}

/// How training fits the RAM.
#[derive(Debug, Serialize)]
struct RamFit {
    have: u64,
    fits: bool,
    /// Bytes of the setting that was found, or else of the smallest one.
    need: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<FitSetting>,
}

#[derive(Debug, Serialize)]
struct FitSetting {
    /// Samples per pass; gradients are summed over as many passes as the batch needs.
    samples_per_pass: u16,
    /// No gradient segment: each gradient is applied as soon as it is known.
    fused: bool,
    /// Multiply-accumulates per sample of recomputed activations.
    macs_again: u64,
}

#[derive(Debug, Serialize)]
struct FlashFit {
    have: u64,
    need: u64,
    fits: bool,
}

#[derive(Debug, Serialize)]
struct BufferRow {
    name: String,
    offset: u64,
    bytes: u64,
    /// First and last instruction that uses it; absent for buffers that always exist.
    live: Option<(usize, usize)>,
}

impl PlanReport {
    pub fn new(graph: &Graph, mask: &WidthMask, request: &PlanRequest) -> Result<Self, FitError> {
        let options = request.options;
        let infer = compile(graph, mask, &PlanOptions::infer(options.batch))?;
        let train = compile(graph, mask, &options)?;
        let mut listed = train.clone();
        let ram = match request.ram.map(|have| (have, fit(graph, mask, &options, have))) {
            None => None,
            Some((have, Ok(plan))) => {
                let need = plan.info.arena_bytes();
                let setting = Some(FitSetting::of(&plan));
                listed = plan;
                Some(RamFit { have, fits: true, need, setting })
            }
            Some((have, Err(FitError::Short(Shortage { need, .. })))) => {
                Some(RamFit { have, fits: false, need, setting: None })
            }
            Some((_, Err(error))) => return Err(error),
        };
        let flash_bytes = train.info.flash_bytes();
        let flash = request.flash.map(|have| FlashFit { have, need: flash_bytes, fits: flash_bytes <= have });
        let buffers = listed.buffers.iter().filter(|_| request.buffers).map(|buffer| BufferRow {
            name: buffer.name.clone(),
            offset: buffer.at * 4,
            bytes: buffer.len * 4,
            live: buffer.live,
        });
        let macs_per_sample = infer.nodes.iter().map(|node| node.op.macs()).sum();
        Ok(Self {
            name: graph.name().to_owned(),
            widths: mask.widths().to_vec(),
            parameters: graph.layout().slice_len(mask),
            macs_per_sample,
            batch: options.batch,
            inference_bytes: infer.info.arena_bytes(),
            training_bytes: train.info.arena_bytes(),
            flash_bytes,
            ram,
            flash,
            buffers: buffers.collect(),
            round: request.round.map(|(samples, epochs)| RoundWork::new(samples, epochs, macs_per_sample)),
        })
    }

    /// True if the tier fits the given RAM and flash.
    pub fn fits(&self) -> bool {
        self.ram.as_ref().is_none_or(|ram| ram.fits) && self.flash.as_ref().is_none_or(|flash| flash.fits)
    }
}

impl FitSetting {
    fn of(plan: &CompiledPlan) -> Self {
        Self {
            samples_per_pass: plan.info.batch,
            fused: plan.info.segments.grads.is_none(),
            macs_again: plan.recomputed_macs(),
        }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} with widths {:?}, batch {}", self.name, self.widths, self.batch)?;
        for (name, number) in [
            ("parameters", self.parameters as u64),
            ("MACs per sample", self.macs_per_sample),
            ("inference arena, bytes", self.inference_bytes),
            ("training arena, bytes", self.training_bytes),
            ("flash, bytes", self.flash_bytes),
        ] {
            writeln!(f, "  {name:<24}{:>15}", grouped(number))?;
        }
        if let Some(round) = &self.round {
            write!(f, "{round}")?;
        }
        match &self.ram {
            None => {}
            Some(RamFit { have, need, setting: Some(setting), .. }) => {
                writeln!(f, "RAM: fits, {} of {} bytes: {setting}", grouped(*need), grouped(*have))?;
            }
            Some(RamFit { have, need, .. }) => {
                let missing = grouped(need - have);
                writeln!(
                    f,
                    "RAM: does not fit; the smallest setting needs {}, {missing} bytes too many",
                    grouped(*need)
                )?;
            }
        }
        if let Some(FlashFit { have, need, fits }) = &self.flash {
            match fits {
                true => writeln!(f, "flash: fits, {} of {} bytes", grouped(*need), grouped(*have))?,
                false => writeln!(f, "flash: does not fit, {} bytes too many", grouped(need - have))?,
            }
        }
        if !self.buffers.is_empty() {
            let mut table = Table::new(1, &["buffer", "offset", "bytes", "first use", "last use"]);
            for buffer in &self.buffers {
                let (first, last) = match buffer.live {
                    Some((first, last)) => (first.to_string(), last.to_string()),
                    None => ("always".to_owned(), String::new()),
                };
                table.row([buffer.name.clone(), grouped(buffer.offset), grouped(buffer.bytes), first, last]);
            }
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RoundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, epochs, macs, target_macs, validation_macs } = self;
        let times = if *epochs == 1 { "epoch" } else { "epochs" };
        writeln!(f, "a round with {samples} samples, {epochs} {times}; training counts as three passes")?;
        for (name, number) in [("MACs", macs), ("MACs, fairness target", target_macs)] {
            writeln!(f, "  {name:<24}{:>15}", grouped(*number))?;
        }
        let (number, percent) = (grouped(*validation_macs), 100.0 * self.share());
        writeln!(f, "  {:<24}{number:>15}, {percent:.1} %", "of these to validate")
    }
}

impl fmt::Display for FitSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} samples per pass", self.samples_per_pass)?;
        f.write_str(if self.fused { ", gradients applied at once" } else { ", gradients kept" })?;
        match self.macs_again {
            0 => Ok(()),
            macs => write!(f, ", {} MACs per sample computed again", grouped(macs)),
        }
    }
}

/// A number of bytes such as 65536, 64k or 1M.
pub fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, ""),
    };
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("'{text}' is no size; write 65536, 64k or 1M")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no size; write 65536, 64k or 1M"))?;
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::{RoundWork, bytes};

    /// One epoch: 80 samples pass four times and 20 once, instead of 100 four times.
    #[test]
    fn the_work_of_a_round() {
        let work = RoundWork::new(100, 1, 10);
        assert_eq!((work.macs, work.target_macs, work.validation_macs), (4000, 3400, 200));
        assert!((work.share() - 20.0 / 340.0).abs() < 1e-12);
        let shown = work.to_string();
        assert!(shown.contains("of these to validate") && shown.contains("200, 5.9 %"), "{shown}");
        // Too few samples to keep any.
        assert_eq!(RoundWork::new(4, 2, 10).validation_macs, 0);
    }

    #[test]
    fn sizes_with_units() {
        assert_eq!(
            ["0", "65536", "64k", "1M", "2 "].map(|text| bytes(text).unwrap()),
            [0, 65536, 65536, 1 << 20, 2]
        );
        for wrong in ["", "k", "1.5k", "64q", "-1", "99999999999999999999", "18446744073709551615k"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
