//! Packs the text files of UCI's optdigits into `data/optdigits.bin` (format: `src/data/digits.rs`).
//!
//! `cargo run -p fairtier-trainer --example pack_optdigits --features host -- optdigits.tra optdigits.tes optdigits.bin`

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [train, test, out] = arguments.as_slice() else {
        return Err("usage: pack_optdigits TRAIN.tra TEST.tes OUT.bin".into());
    };
    let (train, test) = (read(Path::new(train))?, read(Path::new(test))?);
    let mut file = b"FTD1".to_vec();
    for samples in [&train, &test] {
        file.extend(u16::try_from(samples.len())?.to_le_bytes());
    }
    train.iter().chain(&test).for_each(|sample| file.extend(sample));
    fs::write(out, &file)?;
    println!("{} + {} samples, {} bytes", train.len(), test.len(), file.len());
    Ok(())
}

/// One line per sample: 64 pixels of 0..=16, then the label.
fn read(path: &Path) -> Result<Vec<[u8; 41]>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let mut samples = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{}:{}", path.display(), number + 1);
        let values = line.split(',').map(|field| field.trim().parse::<u8>());
        let values =
            values.collect::<Result<Vec<_>, _>>().map_err(|error| format!("{}: {error}", place()))?;
        let Some((&label @ 0..=9, pixels)) = values.split_last() else {
            return Err(format!("{}: the last number is not a digit", place()).into());
        };
        if pixels.len() != 64 || pixels.iter().any(|&pixel| pixel > 16) {
            return Err(format!("{}: expected 64 pixels of 0..=16", place()).into());
        }
        let mut sample = [0; 41];
        for (bytes, row) in sample.chunks_exact_mut(5).zip(pixels.chunks_exact(8)) {
            let bits = row.iter().rev().fold(0u64, |bits, &pixel| bits << 5 | u64::from(pixel));
            bytes.copy_from_slice(&bits.to_le_bytes()[..5]);
        }
        sample[40] = label;
        samples.push(sample);
    }
    Ok(samples)
}
