//! Reads a model from its file. Weights that it keeps in other files ("external data", PyTorch's default) are put in, so that
//! all else sees one file.
//!
//! The model names these files, so their names are not trusted: they must stay in the model's folder, also behind links, and
//! be regular files. Every length is checked before memory is reserved, and all files together have the limit of one. The
//! optional checksums are not compared.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    path::{Component, Path, PathBuf},
};

use common::files::{self, MAX_MODEL};
use prost::Message;

use super::proto::{ModelProto, StringStringEntryProto, TensorProto, data_type};

/// Why a model cannot be read from its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ReadError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("tensor '{tensor}' is kept in file '{location}', {problem}")]
    Weights { tensor: String, location: String, problem: WeightsError },
}

/// What is wrong with a file of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum WeightsError {
    #[error("which is not in the folder of the model; put both there and save the model again")]
    Outside,
    #[error("which is missing; copy it into the folder of the model, under this name")]
    Missing,
    #[error("which cannot be read: {0}")]
    File(io::Error),
    #[error("but '{key}' is '{value}', which is not a number of bytes")]
    Number { key: String, value: String },
    #[error("but elements of type {} cannot be kept there", data_type::name(*.0))]
    Type(i32),
    #[error("but has shape {0:?}, which is too large")]
    Shape(Vec<i64>),
    #[error("but needs {needed} bytes instead of {given}; the model is damaged")]
    Length { needed: u64, given: u64 },
    #[error(
        "which ends before byte {end}; it has {len} bytes and may be incomplete or belong to another model"
    )]
    Short { end: u64, len: u64 },
    #[error("but a model and its weights may have at most {MAX_MODEL} bytes in total")]
    TooLarge,
}

/// The bytes of a model, with the weights that it keeps in other files.
pub fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let bytes = files::read(path, MAX_MODEL)?;
    // Import says what is wrong with a damaged file.
    let Ok(mut model) = ModelProto::decode(&bytes[..]) else { return Ok(bytes) };
    if !model.tensors().any(|tensor| tensor.is_external()) {
        return Ok(bytes);
    }
    let mut folder = WeightsFolder::of(path, MAX_MODEL.saturating_sub(bytes.len() as u64))?;
    drop(bytes);
    for tensor in model.tensors().filter(|tensor| tensor.is_external()) {
        let location = entry(tensor, "location").unwrap_or_default().to_owned();
        let loaded = folder.load(&location, tensor);
        tensor.raw_data = loaded.map_err(|problem| {
            let tensor = tensor.name.clone();
            ReadError::Weights { tensor, location, problem }
        })?;
        tensor.external_data = vec![];
        tensor.data_location = 0;
    }
    Ok(model.encode_to_vec())
}

/// The folder of a model.
struct WeightsFolder {
    /// Without links.
    path: PathBuf,
    /// Bytes that may still be read.
    room: u64,
}

impl WeightsFolder {
    fn of(model: &Path, room: u64) -> io::Result<Self> {
        let parent = model.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self { path: fs::canonicalize(parent.unwrap_or(Path::new(".")))?, room })
    }

    /// The bytes of a tensor.
    fn load(&mut self, location: &str, tensor: &TensorProto) -> Result<Vec<u8>, WeightsError> {
        let needed = bytes_of(tensor)?;
        let offset = number(tensor, "offset")?.unwrap_or(0);
        if let Some(given) = number(tensor, "length")?.filter(|&given| given != needed) {
            return Err(WeightsError::Length { needed, given });
        }
        self.room = self.room.checked_sub(needed).ok_or(WeightsError::TooLarge)?;
        let mut file = self.open(location)?;
        let len = file.metadata().map_err(WeightsError::File)?.len();
        let end = offset.saturating_add(needed);
        if end > len {
            return Err(WeightsError::Short { end, len });
        }
        file.seek(SeekFrom::Start(offset)).map_err(WeightsError::File)?;
        let mut bytes = vec![0; usize::try_from(needed).map_err(|_| WeightsError::TooLarge)?];
        file.read_exact(&mut bytes).map_err(WeightsError::File)?;
        Ok(bytes)
    }

    fn open(&self, location: &str) -> Result<File, WeightsError> {
        let mut parts = Path::new(location).components().peekable();
        let inside = parts.peek().is_some()
            && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside {
            return Err(WeightsError::Outside);
        }
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => WeightsError::Missing,
            _ => WeightsError::File(error),
        };
        let path = fs::canonicalize(self.path.join(location)).map_err(failed)?;
        match path.starts_with(&self.path) {
            true => files::open_regular(&path).map_err(failed),
            false => Err(WeightsError::Outside),
        }
    }
}

impl ModelProto {
    /// All tensors: initializers, then constants in nodes.
    fn tensors(&mut self) -> impl Iterator<Item = &mut TensorProto> {
        self.graph.iter_mut().flat_map(|graph| {
            let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
            graph.initializer.iter_mut().chain(attributes.filter_map(|attribute| attribute.t.as_mut()))
        })
    }
}

/// Bytes that a tensor has in a file.
fn bytes_of(tensor: &TensorProto) -> Result<u64, WeightsError> {
    let size = data_type::bytes(tensor.data_type).ok_or(WeightsError::Type(tensor.data_type))?;
    let bytes = tensor.dims.iter().try_fold(size, |bytes, &dim| bytes.checked_mul(u64::try_from(dim).ok()?));
    bytes.ok_or_else(|| WeightsError::Shape(tensor.dims.clone()))
}

fn entry<'t>(tensor: &'t TensorProto, key: &str) -> Option<&'t str> {
    let found = |entry: &&StringStringEntryProto| entry.key == key;
    tensor.external_data.iter().find(found).map(|entry| entry.value.as_str())
}

fn number(tensor: &TensorProto, key: &str) -> Result<Option<u64>, WeightsError> {
    let parse = |value: &str| {
        let number = value.parse().ok();
        number.ok_or_else(|| WeightsError::Number { key: key.to_owned(), value: value.to_owned() })
    };
    entry(tensor, key).map(parse).transpose()
}

#[cfg(test)]
mod tests;
