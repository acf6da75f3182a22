//! How summaries are written. A summary of no device has no figures: a mean of 0 would look like a perfect model.

use common::metrics::Summary;
use serde::{Serialize, Serializer, ser::SerializeMap};

/// A summary, or its count alone if that is 0.
struct Figures<'a>(&'a Summary);

impl Serialize for Figures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.count > 0 {
            return self.0.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("count", &0)?;
        map.end()
    }
}

pub(super) fn one<S: Serializer>(summary: &Summary, serializer: S) -> Result<S::Ok, S::Error> {
    Figures(summary).serialize(serializer)
}

pub(super) fn each<S: Serializer>(summaries: &[Summary], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(summaries.iter().map(Figures))
}
