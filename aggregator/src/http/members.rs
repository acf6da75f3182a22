//! Members of the fleet and the end of their certificates. All files of `identity/` are read for it, so the answer is kept for
//! a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::ca::{Authority, MemberState};

/// How long a list is kept.
const FRESH: Duration = Duration::from_secs(30);

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
    cached: Mutex<Option<(Instant, Arc<MemberList>)>>,
}

impl Members {
    /// Without an authority there are none.
    pub fn new(authority: Option<Authority>) -> Self {
        Self { authority, cached: Mutex::default() }
    }

    /// The present list. One that cannot be read is kept as it was.
    pub fn list(&self) -> Arc<MemberList> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let last = match &*cached {
            Some((read, list)) if read.elapsed() < FRESH => return list.clone(),
            last => last.as_ref().map(|(_, list)| list.clone()),
        };
        let read = self.authority.as_ref().map(Authority::members);
        let list = match read {
            Some(Ok(members)) => Arc::new(
                members
                    .into_iter()
                    .map(|member| {
                        let known = Member { state: member.state, expires: member.expires };
                        (member.device.to_string(), known)
                    })
                    .collect(),
            ),
            Some(Err(_)) | None => last.unwrap_or_default(),
        };
        *cached = Some((Instant::now(), list.clone()));
        list
    }

    /// The list has changed.
    pub fn forget(&self) {
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
