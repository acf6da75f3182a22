//! A simulated device: a Session whose arena is borrowed while it works.

use client::{Event, Profile, Session, session::Arena};
use common::{Budget, Code, DeviceId, Tier, privacy::Privacy};
use coordinator::fleet::ConnId;

use super::{Hardware, Member, SharedShard, pool::Arenas};

/// Room that is there only while the device works.
#[derive(Debug, Default)]
pub struct LentArena {
    /// What the Plan needs.
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

/// A Session that threads hand to each other.
pub(super) type Traveller = Box<Session<LentArena>>;

pub(super) struct Device {
    pub id: DeviceId,
    pub conn: ConnId,
    pub hardware: Hardware,
    pub shard: SharedShard,
    /// Away while it trains.
    pub session: Option<Traveller>,
    pub refused: Option<Code>,
    /// Something in its arena must survive the round: a personal model, what a lossy codec owes.
    pub keeps: bool,
    /// It has heard all it needs; what else the aggregator says waits until it has room to work in again.
    pub deaf: bool,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).finish()
    }
}

impl Device {
    pub fn new(conn: ConnId, member: Member, budget: Budget, keeps: bool, privacy: Privacy) -> Self {
        let Member { device: id, hardware, shard, .. } = member;
        let profile = Profile { device: id.clone(), budget, data: shard.summary(), privacy };
        let session = Some(Box::new(Session::new(profile, LentArena::default())));
        Self { id, conn, hardware, shard, session, refused: None, keeps, deaf: false }
    }

    pub fn tier(&self) -> Option<Tier> {
        self.session.as_ref().and_then(|session| session.tier())
    }

    /// Gives the device room to work in, unless it has kept its own.
    pub fn lend(&mut self, arenas: &mut Arenas) {
        if let Some(session) = &mut self.session
            && session.arena_mut().floats.is_empty()
        {
            let len = session.arena_mut().len;
            session.replace_arena(LentArena { len, floats: arenas.take(len) });
        }
    }

    /// Takes the room back, unless something in it must stay.
    pub fn give_back(&mut self, arenas: &mut Arenas) {
        if let Some(session) = self.session.as_mut().filter(|_| !self.keeps) {
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
                Event::Failed { code, .. } => (self.refused, self.deaf) = (Some(code), true),
                Event::Joined { .. } | Event::Answered { .. } => self.deaf = true,
                _ => {}
            }
        }
    }
}
