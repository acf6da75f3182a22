//! Experiments, partitions and data sets as tables, pages and pictures. A page is one file: no network, no script.
//! Elements and plots are those of the crate `plots`.
//!
//! | part | is | file |
//! |---|---|---|
//! | `Digest`, `experiments_html`, `experiments_markdown` | saved results of experiments | `experiment` |
//! | `appendix` | every check of the papers' claims, and what was run | `appendix` |
//! | `partition_table`, `partition_html`, `partition_picture` | samples of each client | `partition` |
//! | `set_table`, `sets_table` | content of a data set, and a list of all | `sets` |

mod appendix;
mod experiment;
mod partition;
mod sets;

pub(crate) use appendix::appendix;
pub(crate) use experiment::{Digest, SourceDigest, experiments_html, experiments_markdown};
pub(crate) use partition::{partition_html, partition_picture, partition_table};
pub(crate) use sets::{set_table, sets_table};
