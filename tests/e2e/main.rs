//! FairTier end to end.
//!
//! | module | what it holds |
//! |---|---|
//! | `admission` | connections and bytes of strangers and devices are bounded |
//! | `bad_network` | the real programs over a relay that loses, delays, cuts off and changes ports |
//! | `boards` | behind a bridge: revocation, grants |
//! | `book` | the commands of docs/, as a reader types them |
//! | `changed_samples` | a file of samples that changes during a run |
//! | `custom_strategy` | a strategy of a third party, in the simulator and over QUIC |
//! | `dashboard` | pages for browsers: their numbers, hostile clients, login |
//! | `divergence` | runs that diverge end with E56, and say what to do |
//! | `exchanges` | rounds of several exchanges, over QUIC and interrupted in memory |
//! | `fairness_target` | a fairness target: changed in mid-run, replayed, after crashes and rollbacks |
//! | `file_permissions` | who may read files, and how much of a file is read |
//! | `fleet_schema` | a scale that one device moves, and samples that are not read by the schema of the run |
//! | `forged_refusals` | what may end a running device: forged packets, other servers, wrong clocks, other protocols |
//! | `fuzz_corpus` | seeds of the fuzz targets |
//! | `handshake_flood` | floods of handshakes, from one address and from many |
//! | `hostile_bridges` | hostile boards and gateways behind a bridge, and hostile bridges |
//! | `hostile_devices` | hostile devices, and strangers |
//! | `identity` | tokens, renewal, revocation, allowed tiers |
//! | `inference` | the exported models through tract |
//! | `invalid_messages` | state machines that receive invalid messages in any order |
//! | `kills` | `kill -9` at many instants: nothing is lost or counted twice, and the model is the same |
//! | `load_generator` | the load generator |
//! | `log_injection` | text from peers stays on one line of the log |
//! | `loss_inflation` | devices that report false sample counts |
//! | `model_kinds` | convolutional and recurrent models through whole runs in memory |
//! | `older_stores` | stores and configurations of older programs |
//! | `operations` | commands of operators: `verify`, `rollback`, `status`, `history`, a full disk |
//! | `operator_mistakes` | mistakes of operators: configuration, model files, identities, damaged stores |
//! | `predictions` | predictions by the schema inside an exported model |
//! | `privacy_limits` | owners' limits on what leaves their devices |
//! | `protocol_versions` | peers of older and newer protocols |
//! | `rare_classes` | a device with its own classes, under the default configuration |
//! | `reconnect_backoff` | a fleet that reconnects after its gateway was down |
//! | `rounds` | runs of the real programs over QUIC: learning, slices, restarts |
//! | `run_status` | progress of a run: `status`, refusals in the log, runs in which nothing was trained |
//! | `security_doc` | SECURITY.md names tests that exist |
//! | `service` | a gateway as a service: backups under load, a service manager, reloads, metrics, packaging |
//! | `several_gateways` | devices and bridges with several addresses: gateways that stop, die, are full or come back elsewhere |
//! | `simulation` | whole runs over bad links in memory, and every strategy |
//! | `slow_devices` | what a round waits for, in virtual time |
//! | `stalled_processes` | processes that are stopped, killed, revoked or started twice |
//! | `standby` | two gateways on PostgreSQL: killed, stopped and restarted, the models are those of one gateway |
//! | `stolen_keys` | stolen server keys, names that are enrolled twice, restored backups |
//! | `write_order` | data is on the disk before the ledger refers to it |
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod admission;
mod bad_network;
mod boards;
#[cfg(feature = "infer")]
mod book;
mod changed_samples;
mod custom_strategy;
mod dashboard;
mod divergence;
mod exchanges;
mod exported_models;
mod fairness_target;
mod file_permissions;
mod fleet_schema;
mod forged_refusals;
mod fuzz_corpus;
mod handshake_flood;
mod hostile_bridges;
mod hostile_devices;
mod identity;
#[cfg(feature = "infer")]
mod inference;
mod invalid_messages;
mod kills;
mod load_generator;
mod log_injection;
mod loss_inflation;
mod model_kinds;
mod older_stores;
mod operations;
mod operator_mistakes;
mod predictions;
mod privacy_limits;
mod protocol_versions;
mod rare_classes;
mod reconnect_backoff;
mod rounds;
mod run_status;
mod security_doc;
mod service;
mod several_gateways;
mod several_runs;
mod simulation;
mod slow_devices;
mod stalled_processes;
#[cfg(feature = "cluster")]
mod standby;
mod stolen_keys;
mod write_order;
