//! Members of the fleet and the end of their certificates. All files of `identity/` are read for it, so the answer is kept
//! until a member is added or removed, or for a while: certificates expire.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use crate::ca::{Authority, MemberState};

/// How long a list is kept if the directories stay as they are, and how long in any case.
const FRESH: Duration = Duration::from_secs(30);
const LEAST: Duration = Duration::from_secs(2);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub state: MemberState,
    /// Seconds since 1970.
    pub expires: Option<u64>,
}

pub type MemberList = BTreeMap<String, Member>;

/// The members of one directory.
#[derive(Debug)]
pub struct Members {
    authority: Option<Authority>,
    cached: Mutex<Option<Cached>>,
}

#[derive(Debug)]
struct Cached {
    read: Instant,
    stamp: [Option<SystemTime>; 2],
    list: Arc<MemberList>,
    /// When the server's certificate expires.
    server: Option<u64>,
}

impl Members {
    /// Without an authority there are none.
    pub fn new(authority: Option<Authority>) -> Self {
        Self { authority, cached: Mutex::default() }
    }

    /// The present list, and when the server's certificate expires. A list that cannot be read is kept as it was.
    pub fn list(&self) -> (Arc<MemberList>, Option<u64>) {
        let Some(authority) = &self.authority else { return (Arc::default(), None) };
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        // Before reading: what changes meanwhile is read next time.
        let stamp = authority.members_stamp();
        if let Some(last) = &*cached {
            let age = last.read.elapsed();
            if age < LEAST || age < FRESH && last.stamp == stamp {
                return (last.list.clone(), last.server);
            }
        }
        let list = match authority.members() {
            Ok(members) => {
                let known = members.into_iter().map(|member| {
                    let known = Member { state: member.state, expires: member.expires };
                    (member.device.to_string(), known)
                });
                Arc::new(known.collect())
            }
            Err(_) => cached.take().map(|last| last.list).unwrap_or_default(),
        };
        let server = authority.server_expires();
        *cached = Some(Cached { read: Instant::now(), stamp, list: list.clone(), server });
        (list, server)
    }

    /// The list has changed.
    pub fn forget(&self) {
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
