//! FairTier end to end.
//!
//! | module | what it holds |
//! |---|---|
//! | `admission` | connections and bytes of strangers and devices are bounded |
//! | `authority` | thieves of the server's key, names that are enrolled twice, restored backups |
//! | `boards` | behind a bridge: revocation, terms |
//! | `loss_inflation` | devices that say more of themselves than can be true |
//! | `bridges` | what a bridge carries when the ends of its lines lie, and what it can find out |
//! | `operations` | of operators: `verify`, `rollback`, `status`, `history`, a full disk |
//! | `corpus` | seeds of the fuzz targets |
//! | `custom_strategy` | a strategy of a third party, in the simulator and over QUIC |
//! | `durable` | what is on the disk before the ledger names it |
//! | `exchanges` | rounds of several exchanges, over QUIC and interrupted in memory |
//! | `files` | who may read them, and how much of one is read |
//! | `forged_refusals` | what may end a running device: forged packets, other servers, wrong clocks, other protocols |
//! | `garbage` | state machines that are told nonsense in any order |
//! | `handshake_flood` | floods of handshakes, from one address and from many |
//! | `hostile` | devices that lie, and strangers |
//! | `inference` | the exported models through tract |
//! | `identity` | tokens, renewal, revocation, allowed tiers |
//! | `kills` | `kill -9` at many instants: nothing lost, nothing twice, the same model |
//! | `load` | the load generator |
//! | `logs` | what peers say stays one line |
//! | `minority` | a device with classes of its own, with the configuration that `init` writes |
//! | `mistakes` | of operators: configuration, model files, identities, damaged stores |
//! | `network` | the real programs over a relay that loses, delays, cuts off and changes ports |
//! | `networks` | convolutional and recurrent models through whole runs in memory |
//! | `older` | stores and configurations that older programs have written |
//! | `pace` | a fleet that comes back after its gateway was away |
//! | `privacy` | owners who limit what leaves their devices |
//! | `rounds` | runs of the real programs over QUIC: learning, slices, restarts |
//! | `security_page` | SECURITY.md names tests that exist |
//! | `simulation` | whole runs over bad links in memory, and every strategy |
//! | `standing` | where a run stands: `status`, refusals in the log, runs in which nothing was trained |
//! | `stalls` | processes that are stopped, killed, revoked or started twice |
//! | `versions` | peers of older and newer protocols |
//! | `waiting` | what a round waits for, in virtual time |
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod admission;
mod authority;
mod boards;
mod bridges;
mod corpus;
mod custom_strategy;
mod durable;
mod exchanges;
mod files;
mod forged_refusals;
mod garbage;
mod handshake_flood;
mod hostile;
mod identity;
#[cfg(feature = "infer")]
mod inference;
mod kills;
mod load;
mod logs;
mod loss_inflation;
mod minority;
mod mistakes;
mod network;
mod networks;
mod older;
mod operations;
mod pace;
mod privacy;
mod rounds;
mod security_page;
mod simulation;
mod stalls;
mod standing;
mod versions;
mod waiting;
