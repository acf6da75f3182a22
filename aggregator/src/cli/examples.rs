//! What `--help` shows after the options.

pub(super) const ALL: &str = "\
Examples:
  fairtier gateway init gateway                      create configuration and certificates
  fairtier gateway enroll --dir gateway cam-1 cam-2  write cam-1.pem and cam-2.pem for two devices
  fairtier gateway enroll --dir gateway --serial m4  write m4.board for a board behind a bridge
  fairtier gateway token --dir gateway cam-3         a one-time token: `fairtier device enroll --token ..` on the device
  fairtier gateway enroll --dir gateway --tiers 1,2 --days 90 cam-4  valid for two tiers; renewed by the device itself
  fairtier gateway enroll --dir gateway --replace cam-1  a new identity for a name that is a member, or was
  fairtier gateway revoke --dir gateway cam-2        cam-2 can no longer connect
  fairtier gateway members --dir gateway             list members and revoked devices
  fairtier gateway rotate-server-key --dir gateway   a new key for the server, if the present one may be stolen
  fairtier gateway check --dir gateway               would it start, and what does each tier cost?
  fairtier gateway backup --dir gateway monday.tar   all that the gateway needs to go on, also while it runs
  fairtier gateway restore monday.tar --dir gateway-2  the same gateway in another directory
  fairtier gateway serve --dir gateway               serve until the run is over or Ctrl-C
  fairtier gateway resume --dir gateway              the same, but never begins a new run
  fairtier gateway status --dir gateway              the last round, and the devices this one waits for
  fairtier gateway history --dir gateway --format csv  one line per round
  fairtier gateway fairness --dir gateway            the fairness target: measured, reached or not, and why
  fairtier gateway verify --dir gateway              check the whole store and list what is damaged
  fairtier gateway rollback --dir gateway --to 41    make the model after round 41 the present one
  fairtier round combine --strategy fedlf round.json  compute a recorded round again, with any strategy
  fairtier gateway export --dir gateway --out onnx   the present model as ONNX, one file per tier
  fairtier gateway run new --dir gateway second      another run of the same fleet
  fairtier gateway cluster status --dir gateway      several gateways on one database: which one leads";

pub(super) const INIT: &str = "\
Examples:
  fairtier gateway init gateway             then edit gateway/fairtier.toml and enrol devices
  fairtier gateway init /var/lib/fairtier";

pub(super) const ENROLL: &str = "\
Examples:
  fairtier gateway enroll --dir gateway --out keys cam-1 cam-2       keys/cam-1.pem and keys/cam-2.pem
  fairtier gateway enroll --dir gateway --serial m4                  m4.board for a board's flash
  fairtier gateway enroll --dir gateway --replace cam-1              cam-1 is a member, or was: its earlier identity becomes invalid
  fairtier gateway enroll --dir gateway --tiers 1,2 --days 90 cam-4  valid for two tiers; renewed by the device itself";

pub(super) const TOKEN: &str = "\
Examples:
  fairtier gateway token --dir gateway cam-3                         valid for a day
  fairtier gateway token --dir gateway --hours 1 --days 90 cam-3     and on the device:
  fairtier device enroll --server gateway:4433 --token ..";

pub(super) const MEMBERS: &str = "\
Examples:
  fairtier gateway members --dir gateway
  fairtier gateway members --dir gateway --format json | jq '.[] | select(.state == \"restored\").device'";

pub(super) const ROTATE: &str = "\
Examples:
  fairtier gateway rotate-server-key --dir gateway      also while `serve` runs";

pub(super) const REVOKE: &str = "\
Examples:
  fairtier gateway revoke --dir gateway cam-2
  fairtier gateway revoke --dir gateway cam-2 cam-3   also while `serve` runs";

pub(super) const CHECK: &str = "\
Examples:
  fairtier gateway check --dir gateway                                      exit code 1 if the gateway would not start
  fairtier gateway check --dir gateway --listen 0.0.0.0:4433 --metrics 127.0.0.1:9464
  fairtier gateway check --dir gateway --format json | jq '.findings[] | select(.state != \"ok\")'";

pub(super) const SCHEMA: &str = "\
Examples:
  fairtier gateway schema > fairtier.schema.json        then, as the first line of fairtier.toml, for editors with Taplo:
  #:schema fairtier.schema.json";

pub(super) const BACKUP: &str = "\
Examples:
  fairtier gateway backup --dir gateway monday.tar      also while `serve` runs
  fairtier gateway backup --dir gateway /mnt/safe/gateway.tar --format json";

pub(super) const RESTORE: &str = "\
Examples:
  fairtier gateway restore monday.tar --dir gateway-2   then: fairtier gateway resume --dir gateway-2";

pub(super) const CLUSTER: &str = "\
Examples:
  fairtier gateway cluster init --dir gw-1       once on every gateway, after [cluster] is set in its fairtier.toml
  fairtier gateway cluster status --dir gw-1     which gateway leads
  fairtier gateway cluster migrate --dir gw-1    after an update of the program";

pub(super) const CLUSTER_INIT: &str = "\
Examples:
  fairtier gateway init gw-1                     then set [cluster] in gw-1/fairtier.toml
  fairtier gateway cluster init --dir gw-1
  fairtier gateway serve --dir gw-1";

pub(super) const CLUSTER_MIGRATE: &str = "\
Examples:
  fairtier gateway cluster migrate --dir gw-1    after an update of the program, before the gateways are started again";

pub(super) const CLUSTER_STATUS: &str = "\
Examples:
  fairtier gateway cluster status --dir gw-1
  fairtier gateway cluster status --dir gw-1 --format json | jq -r .leader";

pub(super) const SERVE: &str = "\
Examples:
  fairtier gateway serve --dir gateway --metrics 127.0.0.1:9464   for Prometheus: /metrics, /healthz and /readyz
  fairtier gateway serve --dir gateway --log-format json 2> gateway.log
  fairtier gateway serve --dir gateway --listen 0.0.0.0:4433   until Ctrl-C
  fairtier gateway serve --dir gateway --fairness 0.3          losses of tiers within 30 % of their mean
  fairtier gateway serve --dir gateway --dashboard 127.0.0.1:8080  pages of the run for a browser
  fairtier gateway serve --dir gateway --exit-when-done        ends when the run is over and devices have their models";

pub(super) const RESUME: &str = "\
Examples:
  fairtier gateway resume --dir gateway                        after a crash, a full disk, or `rollback`
  fairtier gateway resume --dir gateway --listen 0.0.0.0:4433 --exit-when-done";

#[cfg(feature = "dashboard")]
pub(super) const DASHBOARD: &str = "\
Examples:
  fairtier gateway dashboard --dir gateway                         look at a run that is stopped or finished
  fairtier gateway dashboard --dir gateway --listen 127.0.0.1:9000
  fairtier gateway dashboard user --help
  fairtier gateway dashboard user add --dir gateway ann --role operator   asks for a password
  fairtier gateway dashboard user list --dir gateway
  fairtier gateway dashboard user remove --dir gateway ann";

pub(super) const STATUS: &str = "\
Examples:
  fairtier gateway status --dir gateway
  fairtier gateway status --dir gateway --follow          every round, until the run ends
  fairtier gateway status --dir gateway --follow --format json | jq 'select(.event == \"round\").report.loss.mean'
  fairtier gateway status --dir gateway --format json | jq '.waiting'            devices a long round waits for, and until when
  fairtier gateway status --dir gateway --format json | jq '.last_round.guard'   what the guard has held, and why";

pub(super) const HISTORY: &str = "\
Examples:
  fairtier gateway history --dir gateway
  fairtier gateway history --dir gateway --last 20
  fairtier gateway history --dir gateway --format csv > rounds.csv
  fairtier gateway history --dir gateway --format json | jq '.[-1].participation'";

pub(super) const FAIRNESS: &str = "\
Examples:
  fairtier gateway fairness --dir gateway
  fairtier gateway fairness --dir gateway --target 0.25   from the next round on, also while `serve` runs
  fairtier gateway fairness --dir gateway --format json | jq '.fairness[].status'";

pub(super) const VERIFY: &str = "\
Examples:
  fairtier gateway verify --dir gateway                 stop `serve` first; exit code 1 if something is damaged
  fairtier gateway verify --dir gateway --format json";

pub(super) const ROLLBACK: &str = "\
Examples:
  fairtier gateway rollback --dir gateway --to 41       stop `serve` first; `verify` lists the models that are kept
  fairtier gateway rollback --dir gateway --to 0        back to the initial model, if it is kept";

pub(super) const COMBINE: &str = "\
Examples:
  fairtier round combine gateway/rounds/round-000007.json --format table
  fairtier round combine --strategy qffl --params '{\"q\": 2}' round.json";

pub(super) const REPLAY: &str = "\
Examples:
  fairtier fairness replay gateway/store/history.jsonl --config gateway/fairtier.toml
  fairtier fairness replay gateway/store/history.jsonl --target 0.2 --format csv > knobs.csv
  fairtier fairness replay sums.csv --target 0.2 --strategy term    columns round,tier,size,n,s1,s2,sv
  fairtier fairness replay sums.json --target 0.2    { \"size\": [4, 4], \"rounds\": [{ \"n\": [3, 4], \"s1\": .. }] }";

pub(super) const EXPORT: &str = "\
Examples:
  fairtier gateway export --dir gateway --out onnx                onnx/tier-0.onnx and so on; also while `serve` runs
  fairtier gateway export --dir gateway --out onnx --round best   the model that devices have reported the best figures of
  fairtier gateway export --dir gateway --out onnx --round 41     if it is kept; otherwise the rounds that are kept are listed";

pub(super) const RUN: &str = "\
Examples:
  fairtier gateway run new --dir gateway second        then edit gateway/runs/second/fairtier.toml, and serve
  fairtier gateway run list --dir gateway
  fairtier gateway run switch --dir gateway default    back to the run in the directory itself";

pub(super) const RUN_NEW: &str = "\
Examples:
  fairtier gateway run new --dir gateway second        copies the configuration to gateway/runs/second/fairtier.toml";

pub(super) const RUN_LIST: &str = "\
Examples:
  fairtier gateway run list --dir gateway
  fairtier gateway run list --dir gateway --format json | jq '.[] | select(.active).run'";

pub(super) const RUN_SWITCH: &str = "\
Examples:
  fairtier gateway run switch --dir gateway second
  fairtier gateway run switch --dir gateway default    the run in the directory itself";

pub(super) const CODES: &str = "\
Examples:
  fairtier codes                                all codes, one line each
  fairtier codes E53                            what E53 means, and what to do
  fairtier codes --format json";
