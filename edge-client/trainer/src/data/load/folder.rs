//! A folder of images: PNG and JPEG, one folder inside for each class.
//!
//! ```text
//! photos/cat/1.png   photos/cat/2.jpg   photos/dog/1.png
//! ```
//! All images have the same size and the same channels: grey or RGB. Nothing is resized. Pixels become pixel/255, channel by
//! channel. Names that start with a dot are skipped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{BoundedFile, LIMIT, LoadError};
use crate::data::Samples;

mod decode;

use decode::Image;

/// Images with the number of the class that their folder is named after.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FolderImages {
    /// Channels, height, width.
    pub shape: [usize; 3],
    /// Image after image, channel after channel, from 0 to 1.
    pub features: Vec<f32>,
    /// One per image.
    pub labels: Vec<u32>,
}

/// Samples of a folder whose classes are whole numbers from 0.
pub fn folder(path: &Path) -> Result<Samples, LoadError> {
    let class = |name: &str| {
        let unknown = "is no whole number; devices could not agree on the numbers of names. List the classes in a schema";
        name.parse().map_err(|_| unknown.to_owned())
    };
    let images = folder_images(path, &class)?;
    let inputs = images.shape.iter().product();
    Samples::new(images.features, images.labels, inputs)
        .map_err(|source| LoadError::Data { path: path.into(), source })
}

/// Images of a folder; `class` says which number the name of a folder stands for.
pub fn folder_images(
    path: &Path,
    class: &dyn Fn(&str) -> Result<u32, String>,
) -> Result<FolderImages, LoadError> {
    let mut found = FolderImages::default();
    for folder in entries(path)? {
        let wrong = |problem: String| LoadError::Format { path: folder.clone(), problem };
        if !folder.is_dir() {
            return Err(wrong("is not in the folder of a class; move or remove it".into()));
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let label = class(&name).map_err(wrong)?;
        for file in entries(&folder)? {
            found.add(&file, label)?;
        }
    }
    match found.labels.is_empty() {
        true => Err(LoadError::Format { path: path.into(), problem: "holds no images".into() }),
        false => Ok(found),
    }
}

/// Images that a model predicts for: as [`folder_images`], or all in one folder and without labels.
pub fn images_to_predict(
    path: &Path,
    class: &dyn Fn(&str) -> Result<u32, String>,
) -> Result<FolderImages, LoadError> {
    let files = entries(path)?;
    if files.is_empty() || files.iter().any(|file| file.is_dir()) {
        return folder_images(path, class);
    }
    let mut found = FolderImages::default();
    files.iter().try_for_each(|file| found.add(file, 0))?;
    found.labels.clear();
    Ok(found)
}

impl FolderImages {
    fn add(&mut self, file: &Path, label: u32) -> Result<(), LoadError> {
        let wrong = |problem: String| LoadError::Format { path: file.into(), problem };
        let Image { shape, pixels } =
            Image::decode(&BoundedFile::open(file, LIMIT)?.bytes()?).map_err(wrong)?;
        if self.labels.is_empty() {
            self.shape = shape;
        }
        if self.shape != shape {
            let text =
                |[channels, height, width]: [usize; 3]| format!("{width}x{height} with {channels} channels");
            return Err(wrong(format!(
                "is {}, the first image is {}; bring all to one size",
                text(shape),
                text(self.shape)
            )));
        }
        if (self.features.len() + pixels.len()) as u64 > LIMIT / 4 {
            return Err(LoadError::TooLarge { path: file.into(), limit: LIMIT });
        }
        let channels = shape[0];
        let planes = (0..channels).flat_map(|channel| pixels.iter().skip(channel).step_by(channels));
        self.features.extend(planes.map(|&pixel| f32::from(pixel) / 255.0));
        self.labels.push(label);
        Ok(())
    }
}

/// What a directory holds, in the order of names, so that samples have the same order on every machine.
fn entries(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    paths.retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG of one grey or RGB image.
    fn png(width: u32, height: u32, colour: png::ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        file
    }

    fn write(dir: &Path, name: &str, content: &[u8]) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn channels_come_first() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "1/a.png", &png(2, 1, png::ColorType::Rgb, &[255, 0, 51, 0, 255, 102]));
        write(dir.path(), "0/b.png", &png(2, 1, png::ColorType::Rgb, &[0; 6]));
        write(dir.path(), ".hidden", b"");
        let samples = folder(dir.path()).unwrap();
        assert_eq!(samples.labels(), [0, 1]);
        assert_eq!(samples.row(1), Some(&[1.0, 0.0, 0.0, 1.0, 0.2, 0.4][..]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let grey = |width: u32| png(width, 1, png::ColorType::Grayscale, &vec![0; width as usize]);
        let error = |files: &[(&str, Vec<u8>)]| {
            let dir = tempfile::tempdir().unwrap();
            files.iter().for_each(|(name, content)| write(dir.path(), name, content));
            folder(dir.path()).unwrap_err().to_string()
        };
        assert!(
            error(&[("0/a.png", grey(2)), ("1/b.png", grey(3))]).contains("b.png: is 3x1 with 1 channels")
        );
        assert!(error(&[("cat/a.png", grey(2))]).contains("cat: is no whole number"));
        assert!(error(&[("0/a.txt", b"text".to_vec())]).contains("a.txt: is neither PNG nor JPEG"));
        assert!(error(&[("a.png", grey(2))]).contains("is not in the folder of a class"));
        assert!(error(&[("0/a.png", grey(2)[..40].to_vec())]).contains("a.png: "));
        let alpha = png(1, 1, png::ColorType::Rgba, &[0; 4]);
        assert!(error(&[("0/a.png", alpha)]).contains("transparency"));
        assert!(error(&[]).contains("holds no images"));
    }

    /// A JPEG of 8x8 grey pixels of 128 that says it has this height and width.
    fn jpeg([height, width]: [u16; 2]) -> Vec<u8> {
        let [[above, below], [left, right]] = [height, width].map(u16::to_be_bytes);
        // Quantisation, frame, a code of one symbol for DC and AC, scan.
        [
            &[0xff, 0xd8, 0xff, 0xdb, 0, 67, 0],
            &[1; 64][..],
            &[0xff, 0xc0, 0, 11, 8, above, below, left, right, 1, 1, 0x11, 0],
            &[0xff, 0xc4, 0, 20, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xff, 0xc4, 0, 20, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 0x3f, 0xff, 0xd9],
        ]
        .concat()
    }

    #[test]
    fn jpeg_is_grey() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "0/a.jpg", &jpeg([8, 8]));
        let samples = folder(dir.path()).unwrap();
        assert_eq!(samples.inputs(), 64);
        assert!(samples.features().iter().all(|pixel| (pixel - 128.0 / 255.0).abs() < 0.01));
    }

    #[test]
    fn a_header_cannot_ask_for_memory_that_the_file_does_not_fill() {
        let error = |name: &str, file: &[u8]| {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), name, file);
            folder(dir.path()).unwrap_err().to_string()
        };
        // A large image, of which the start is there.
        let side = 1 << 11;
        let whole = png(side, side, png::ColorType::Grayscale, &vec![0; (side * side) as usize]);
        let text = error("0/a.png", &whole[..1000]);
        assert!(text.contains("says it is 2048x2048, which 1000 bytes cannot hold"), "{text}");
        let text = error("0/a.jpg", &jpeg([1 << 13; 2]));
        assert!(text.contains("says it is 8192x8192"), "{text}");
        // An image of one colour is the smallest file of its size.
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "0/a.png", &whole);
        assert_eq!(folder(dir.path()).unwrap().inputs(), (side * side) as usize);
    }
}
