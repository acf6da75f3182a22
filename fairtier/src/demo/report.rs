//! The result of the demo as a table, a page and a picture.
//!
//! | function | gives | file |
//! |---|---|---|
//! | [`table`] | the comparison as plain text | `table` |
//! | [`html`] | one self-contained page: no network, no script, light and dark | `html` |
//! | [`picture`] | the main comparison as one SVG file | `picture` |
//! | [`boards_html`], [`boards_markdown`] | the comparison on boards, with their memory and traffic | `boards` |
//!
//! `rows` defines the compared figures, for table and page; `plot` has one file for each plot.

mod boards;
mod html;
mod picture;
mod plot;
mod rows;
mod table;

pub use boards::{BoardUsage, boards_html, boards_markdown};
pub use html::html;
pub use picture::picture;
pub use table::table;

#[cfg(test)]
mod tests;
