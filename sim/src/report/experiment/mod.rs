//! The report of experiments as a page, Markdown or JSON, all from the same digest of saved results.
//!
//! | part | is | file |
//! |---|---|---|
//! | [`Digest`] | every number that is shown, over seeds | `digest`, `curve` |
//! | [`html`](experiments_html) | one self-contained page | `page`, `tables`, `plots` |
//! | [`markdown`](experiments_markdown) | the tables alone | `markdown` |
//!
//! Missing runs are reported in place of their numbers.

mod curve;
mod digest;
mod markdown;
mod page;
mod plots;
mod tables;

pub use digest::{Digest, SourceDigest};
pub use markdown::markdown as experiments_markdown;
pub use page::html as experiments_html;
