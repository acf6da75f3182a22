//! Who is logged in. Sessions live in memory: a restart of the gateway ends all of them.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use ring::{
    digest,
    rand::{SecureRandom, SystemRandom},
};

use super::Role;

/// A session ends this long after its last request, and this long after its login.
const IDLE: Duration = Duration::from_secs(30 * 60);
const AGE: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once.
const MOST: usize = 256;
const SECRET: usize = 32;

/// A user of the dashboard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub name: String,
    pub role: Role,
    /// Sent back by every form of this session.
    pub csrf: String,
}

impl User {
    /// Whether a form was made for this session. Digests are compared, so the time says nothing about the token.
    pub fn made(&self, csrf: &str) -> bool {
        key(csrf) == key(&self.csrf)
    }
}

#[derive(Debug)]
struct Session {
    user: User,
    began: Instant,
    used: Instant,
    /// What the last action has done, and the key under which its page asks for it. It may hold a token.
    said: Option<(String, String)>,
}

/// All sessions, by the digest of their secret: finding one takes a time that says nothing about the secret.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<Vec<u8>, Session>>);

impl Sessions {
    /// Begins a session. Returns its secret; `None` if the system has no random numbers.
    pub fn begin(&self, name: &str, role: Role, now: Instant) -> Option<String> {
        let (secret, csrf) = (random()?, random()?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| session.is_open(now));
        if all.len() >= MOST
            && let Some(oldest) =
                all.iter().min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone())
        {
            all.remove(&oldest);
        }
        let user = User { name: name.to_owned(), role, csrf };
        all.insert(key(&secret), Session { user, began: now, used: now, said: None });
        Some(secret)
    }

    /// The user of a session that is open. `used`: the request is one of the user's, not of a page that follows the run.
    pub fn find(&self, secret: &str, used: bool, now: Instant) -> Option<User> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.get_mut(&key(secret)).filter(|session| session.is_open(now))?;
        if used {
            session.used = now;
        }
        Some(session.user.clone())
    }

    /// Keeps what an action has done until a page of the session asks for it. Returns the key; `None` without a session.
    pub fn tell(&self, secret: &str, said: String) -> Option<String> {
        let text = random()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_mut(&key(secret))?.said = Some((text.clone(), said));
        Some(text)
    }

    /// What was kept under a key, once.
    pub fn told(&self, secret: &str, asked: &str) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = all.get_mut(&key(secret))?;
        let (_, said) = session.said.take_if(|(own, _)| key(own) == key(asked))?;
        Some(said)
    }

    pub fn end(&self, secret: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(secret));
    }
}

impl Session {
    fn is_open(&self, now: Instant) -> bool {
        now.duration_since(self.used) < IDLE && now.duration_since(self.began) < AGE
    }
}

fn key(secret: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, secret.as_bytes()).as_ref().to_vec()
}

fn random() -> Option<String> {
    let mut bytes = [0; SECRET];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_by_themselves_and_are_bounded() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let secret = sessions.begin("ann", Role::Read, start).unwrap();
        assert_eq!(secret.len(), 64);
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        assert!(sessions.find(&secret, true, at(29)).is_some());
        assert!(sessions.find(&secret, false, at(58)).is_some(), "the last request was at 29 minutes");
        assert!(sessions.find(&secret, true, at(60)).is_none(), "a page that follows the run does not count");
        let mut minute = 0;
        let secret = sessions.begin("ann", Role::Read, start).unwrap();
        while sessions.find(&secret, true, at(minute)).is_some() {
            minute += 20;
        }
        assert_eq!(minute, 720, "twelve hours, whatever the user does");
        assert!(sessions.find("no secret", true, start).is_none());
        let first = sessions.begin("ann", Role::Read, start).unwrap();
        for _ in 0..MOST {
            sessions.begin("bob", Role::Read, start + Duration::from_secs(1)).unwrap();
        }
        assert!(sessions.find(&first, true, at(1)).is_none());
        let last = sessions.begin("bob", Role::Read, at(1)).unwrap();
        let other = sessions.begin("eve", Role::Read, at(1)).unwrap();
        let asked = sessions.tell(&last, "a token".into()).unwrap();
        assert_eq!((sessions.told(&other, &asked), sessions.told(&last, "0")), (None, None));
        assert_eq!(sessions.told(&last, &asked).as_deref(), Some("a token"));
        assert_eq!(sessions.told(&last, &asked), None, "it is shown once");
        sessions.end(&last);
        assert!(sessions.find(&last, true, at(1)).is_none());
    }
}
