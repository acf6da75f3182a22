//! A simulated device: a Session whose arena is borrowed while it works.

use client::{Event, Profile, Session, session::Arena};
use common::{Budget, Code, DeviceId, Tier, privacy::Privacy};
use coordinator::fleet::ConnId;

use super::{DeviceSpec, Hardware, SharedShard, pool::Arenas};

/// An arena that is filled only while the device works.
#[derive(Debug, Default)]
pub struct LentArena {
    /// Length that the Plan needs.
    len: usize,
    floats: Vec<f32>,
}

impl Arena for LentArena {
    fn reserve(&mut self, len: usize) -> Result<(), usize> {
        self.len = len;
        self.floats.clear();
        Ok(())
    }

    fn floats(&mut self) -> &mut [f32] {
        &mut self.floats
    }
}

/// A Session that moves between threads.
pub(super) type BoxedSession = Box<Session<LentArena>>;

pub(super) struct Device {
    pub id: DeviceId,
    pub conn: ConnId,
    pub hardware: Hardware,
    pub shard: SharedShard,
    /// `None` while it trains on another thread.
    pub session: Option<BoxedSession>,
    pub refused: Option<Code>,
    /// Its arena must survive the round: it holds a personal model or the residual of a lossy codec.
    pub keeps_arena: bool,
    /// It has received all it needs; further messages wait until it has an arena again.
    pub stops_receiving: bool,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).finish()
    }
}

impl Device {
    pub fn new(conn: ConnId, spec: DeviceSpec, budget: Budget, keeps_arena: bool, privacy: Privacy) -> Self {
        let DeviceSpec { device: id, hardware, shard, .. } = spec;
        let profile = Profile { device: id.clone(), budget, data: shard.summary(), privacy };
        let session = Some(Box::new(Session::new(profile, LentArena::default())));
        Self { id, conn, hardware, shard, session, refused: None, keeps_arena, stops_receiving: false }
    }

    pub fn tier(&self) -> Option<Tier> {
        self.session.as_ref().and_then(|session| session.tier())
    }

    /// Gives the device an arena, unless it keeps its own.
    pub fn lend(&mut self, arenas: &mut Arenas) {
        if let Some(session) = &mut self.session
            && session.arena_mut().floats.is_empty()
        {
            let len = session.arena_mut().len;
            session.replace_arena(LentArena { len, floats: arenas.take(len) });
        }
    }

    /// Takes the arena back, unless the device keeps it.
    pub fn give_back(&mut self, arenas: &mut Arenas) {
        if let Some(session) = self.session.as_mut().filter(|_| !self.keeps_arena) {
            let len = session.arena_mut().len;
            let used = session.replace_arena(LentArena { len, floats: vec![] });
            arenas.put(used.floats);
        }
    }

    pub fn has_work(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_work())
    }

    pub fn note_events(&mut self) {
        let Some(session) = &mut self.session else { return };
        while let Some(event) = session.poll_event() {
            match event {
                Event::Refused(refusal) => self.refused = Some(refusal.code),
                Event::Failed { code, .. } => (self.refused, self.stops_receiving) = (Some(code), true),
                Event::Joined { .. } | Event::Answered { .. } => self.stops_receiving = true,
                _ => {}
            }
        }
    }
}
