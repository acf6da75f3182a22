//! What `--help` shows after the options.

pub(super) const ALL: &str = "\
Examples:
  aggregator init gateway                      create configuration and certificates
  aggregator enroll --dir gateway cam-1 cam-2  write cam-1.pem and cam-2.pem for two devices
  aggregator enroll --dir gateway --serial m4  write m4.page for a board behind a bridge
  aggregator token --dir gateway cam-3         a one-time token: `edge-client enroll --token ..` on the device
  aggregator enroll --dir gateway --tiers 1,2 --days 90 cam-4  good for two tiers; renewed by the device itself
  aggregator enroll --dir gateway --replace cam-1  a new identity for a name that is a member, or was
  aggregator revoke --dir gateway cam-2        cam-2 is a stranger from now on
  aggregator members --dir gateway             who is a member, and who was revoked
  aggregator rotate-server-key --dir gateway   a new key for the server, if the present one may be stolen
  aggregator serve --dir gateway               serve until the run is over or Ctrl-C
  aggregator resume --dir gateway              the same, but refuses to begin a new run
  aggregator status --dir gateway              how the last round went, and whom this one waits for
  aggregator history --dir gateway --format csv  one line per round
  aggregator verify --dir gateway              read everything through, say what is damaged
  aggregator rollback --dir gateway --to 41    make the model after round 41 the present one
  aggregator combine --strategy fedlf round.json  compute a recorded round again, with any strategy
  aggregator export --dir gateway --out onnx   the present model as ONNX, one file per tier";

pub(super) const INIT: &str = "\
Examples:
  aggregator init gateway             then edit gateway/fairtier.toml and enrol devices
  aggregator init /var/lib/fairtier";

pub(super) const ENROLL: &str = "\
Examples:
  aggregator enroll --dir gateway --out keys cam-1 cam-2       keys/cam-1.pem and keys/cam-2.pem
  aggregator enroll --dir gateway --serial m4                  m4.page for a board's flash
  aggregator enroll --dir gateway --replace cam-1              cam-1 is a member, or was: its earlier identity is worth nothing
  aggregator enroll --dir gateway --tiers 1,2 --days 90 cam-4  good for two tiers; renewed by the device itself";

pub(super) const TOKEN: &str = "\
Examples:
  aggregator token --dir gateway cam-3                         good for a day
  aggregator token --dir gateway --hours 1 --days 90 cam-3     and on the device:
  edge-client enroll --server gateway:4433 --token ..";

pub(super) const MEMBERS: &str = "\
Examples:
  aggregator members --dir gateway
  aggregator members --dir gateway --format json | jq '.[] | select(.state == \"restored\").device'";

pub(super) const ROTATE: &str = "\
Examples:
  aggregator rotate-server-key --dir gateway      also while `serve` runs";

pub(super) const REVOKE: &str = "\
Examples:
  aggregator revoke --dir gateway cam-2
  aggregator revoke --dir gateway cam-2 cam-3   also while `serve` runs";

pub(super) const SERVE: &str = "\
Examples:
  aggregator serve --dir gateway --listen 0.0.0.0:4433   until Ctrl-C
  aggregator serve --dir gateway --exit-when-done        ends when the run is over and devices have their models";

pub(super) const RESUME: &str = "\
Examples:
  aggregator resume --dir gateway                        after a crash, a full disk, or `rollback`
  aggregator resume --dir gateway --listen 0.0.0.0:4433 --exit-when-done";

pub(super) const STATUS: &str = "\
Examples:
  aggregator status --dir gateway
  aggregator status --dir gateway --format json | jq '.waiting'            whom a long round waits for, and until when
  aggregator status --dir gateway --format json | jq '.last_round.guard'   what the guard has held, and why";

pub(super) const HISTORY: &str = "\
Examples:
  aggregator history --dir gateway
  aggregator history --dir gateway --last 20
  aggregator history --dir gateway --format csv > rounds.csv
  aggregator history --dir gateway --format json | jq '.[-1].participation'";

pub(super) const VERIFY: &str = "\
Examples:
  aggregator verify --dir gateway                 stop `serve` first; exit code 1 if something is damaged
  aggregator verify --dir gateway --format json";

pub(super) const ROLLBACK: &str = "\
Examples:
  aggregator rollback --dir gateway --to 41       stop `serve` first; `verify` says which models are kept
  aggregator rollback --dir gateway --to 0        back to the initial model, if it is kept";

pub(super) const COMBINE: &str = "\
Examples:
  aggregator combine gateway/rounds/round-000007.json --format table
  aggregator combine --strategy qffl --params '{\"q\": 2}' round.json";

pub(super) const EXPORT: &str = "\
Examples:
  aggregator export --dir gateway --out onnx      onnx/tier-0.onnx and so on; also while `serve` runs";

pub(super) const CODES: &str = "\
Examples:
  aggregator codes                                what E53 and the others mean
  aggregator codes --format json";
