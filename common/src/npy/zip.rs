//! The part of the zip format that `.npz` files use: uncompressed members.
//!
//! Sizes and offsets are read from the central directory, because NumPy does not set them in the local headers.

use crate::wire::Crc32;

use super::NpyError;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_LEN: usize = 22;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
/// 1 January 1980, the first date of the format. A fixed date, so that equal arrays give equal bytes.
const DATE: u16 = 0x21;

/// Names and bytes, in the order of the directory.
pub fn members(file: &[u8]) -> Result<Vec<(String, &[u8])>, NpyError> {
    let end = end(file).ok_or(NpyError::Archive)?;
    let (count, mut at) = (u16_at(end, 10)?, u32_at(end, 16)?);
    let mut members = Vec::new();
    for _ in 0..count {
        let header = file.get(at..).filter(|header| header.starts_with(&CENTRAL)).ok_or(NpyError::Archive)?;
        let (method, crc) = (u16_at(header, 10)?, u32_at(header, 16)?);
        let (packed, size, local) = (u32_at(header, 20)?, u32_at(header, 24)?, u32_at(header, 42)?);
        let (name, extra, comment) = (u16_at(header, 28)?, u16_at(header, 30)?, u16_at(header, 32)?);
        let text = header.get(46..46 + name).ok_or(NpyError::Archive)?;
        let text = String::from_utf8_lossy(text).into_owned();
        if method != 0 || packed != size {
            return Err(NpyError::Compressed(text));
        }
        let bytes = stored(file, local, size)?;
        if crc32(bytes) as usize != crc {
            return Err(NpyError::Checksum(text));
        }
        members.push((text, bytes));
        at += 46 + name + extra + comment;
    }
    Ok(members)
}

/// An archive of the given members.
pub fn store(members: impl Iterator<Item = (String, Vec<u8>)>) -> Result<Vec<u8>, NpyError> {
    let (mut file, mut directory, mut count) = (Vec::new(), Vec::new(), 0u16);
    for (name, bytes) in members {
        let size = u32::try_from(bytes.len()).map_err(|_| NpyError::TooLarge)?;
        let at = u32::try_from(file.len()).map_err(|_| NpyError::TooLarge)?;
        let len = u16::try_from(name.len()).map_err(|_| NpyError::TooLarge)?;
        count = count.checked_add(1).ok_or(NpyError::TooLarge)?;
        let mut common = words(&[20, UTF8, 0, 0, DATE]);
        common.extend([crc32(&bytes), size, size].iter().flat_map(|word| word.to_le_bytes()));
        common.extend(words(&[len, 0]));
        file.extend([&LOCAL[..], &common, name.as_bytes(), &bytes].concat());
        directory.extend([&CENTRAL[..], &words(&[20]), &common, &words(&[0, 0, 0, 0, 0])].concat());
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let at = u32::try_from(file.len()).map_err(|_| NpyError::TooLarge)?;
    let len = u32::try_from(directory.len()).map_err(|_| NpyError::TooLarge)?;
    file.extend(directory);
    file.extend([&END[..], &words(&[0, 0, count, count])].concat());
    file.extend([len, at].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(words(&[0]));
    Ok(file)
}

/// The last record of the file; a comment may follow it.
fn end(file: &[u8]) -> Option<&[u8]> {
    let first = file.len().saturating_sub(END_LEN + usize::from(u16::MAX));
    let mut places = (first..=file.len().checked_sub(END_LEN)?).rev();
    places.find_map(|at| file.get(at..).filter(|rest| rest.starts_with(&END)))
}

fn stored(file: &[u8], local: usize, size: usize) -> Result<&[u8], NpyError> {
    let header = file.get(local..).filter(|header| header.starts_with(&LOCAL)).ok_or(NpyError::Archive)?;
    let start = 30 + u16_at(header, 26)? + u16_at(header, 28)?;
    header.get(start..).and_then(|bytes| bytes.get(..size)).ok_or(NpyError::Archive)
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(bytes);
    crc.finish()
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Result<usize, NpyError> {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(NpyError::Archive)?;
    Ok(u16::from_le_bytes(*word).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<usize, NpyError> {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(NpyError::Archive)?;
    Ok(u32::from_le_bytes(*word) as usize)
}
