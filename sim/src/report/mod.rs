//! What a run leaves behind for people: a table, a page, a picture.
//!
//! | part | is | file |
//! |---|---|---|
//! | [`table`] | the comparison as plain text | `table` |
//! | [`html`] | one self-contained page: no network, no script, light and dark | `html`, `style.css` |
//! | [`picture`] | the main comparison as one SVG file | `picture` |
//! | rows | which figures are compared, for table and page alike | `rows` |
//! | plots | one file each | `plot` |
//! | tools | elements, numbers, axes | `markup`, `number`, `scale` |

mod html;
mod markup;
mod number;
mod picture;
mod plot;
mod rows;
mod scale;
mod table;

pub use html::html;
pub use picture::picture;
pub use table::table;

/// Colours and strokes of plots, shared by pages and pictures.
const PLOT_STYLE: &str = include_str!("plot.css");

#[cfg(test)]
mod tests;
