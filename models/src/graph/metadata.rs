//! What a file says about its model, besides the model: `metadata_props` of ONNX.

use super::Graph;

impl Graph {
    /// Keys and values in the order of the file. Slices keep them, and export writes them.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The value of a key.
    pub fn metadata_of(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// The same model with a value in place of that of the same key; `None` removes the key.
    pub fn with_metadata(mut self, key: &str, value: Option<String>) -> Self {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.extend(value.map(|value| (key.to_owned(), value)));
        self
    }
}
