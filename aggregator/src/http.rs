//! The gateway's HTTP side: pages for browsers. It only looks at a run, and cannot slow it: page loads read snapshots and
//! files, never through the worker's queue.
//!
//! | module | does |
//! |---|---|
//! | [`listener`] | sockets, TLS, and limits for slow and greedy clients |
//! | [`metrics`] | figures for monitors, and whether the gateway works |
//! | `headers` | what every answer carries, and which hosts may be named |

mod headers;
pub mod listener;
pub mod metrics;

pub use headers::{AllowedHosts, guarded};
pub use listener::{HttpLimits, Listener};
