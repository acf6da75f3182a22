//! The page about error codes, from the code table and its remedies.

use std::fmt::Write;

use aggregator::cli::remedy;
use common::Code;

/// Groups of codes by their first number, with title and description.
const GROUPS: &[(u16, &str, &str)] = &[
    (1, "The link", "Bytes and messages between a device and the gateway."),
    (10, "Updates", "What a device sends in a round. The round goes on without a refused update."),
    (30, "Devices", "Who may take part, and whether a device can do what it is asked."),
    (50, "The gateway", "Configuration, model, store, and the result of a round."),
];

const HEAD: &str = "# Troubleshooting

Written by `fairtier reference --page troubleshooting`; a test fails when this file is stale.

Errors that cross the link have a code. Logs, `fairtier gateway status` and round files print it as `E33`. `fairtier codes` lists all
codes, `fairtier codes E33` prints one with what to do.

## Without a code

| what you see | what to do |
|---|---|
| The device logs that it cannot reach the gateway. | Check `--server`. A gateway listens on 127.0.0.1 unless `server.listen` or `--listen` says otherwise. QUIC is UDP: open the UDP port. |
| A round does not start. | The gateway waits for `run.min_devices`. `fairtier gateway status` shows how many are connected. |
| A round takes long. | `fairtier gateway status` names the devices it waits for. Lower `round.deadline_s` or `round.quorum`. |
| The loss does not fall. | Scale features to about 0..1 with `--scale`, lower `training.lr`, and check the label column. |
| `serve` ends with exit code 1. | The last line of its log names the reason, with a code. |
";

/// One heading per code, so that links can point to it.
pub(super) fn markdown() -> String {
    let mut text = HEAD.to_owned();
    let mut groups = GROUPS.iter().peekable();
    for code in Code::ALL {
        if let Some((_, title, about)) = groups.next_if(|(first, ..)| *first <= code.number()) {
            let _ = write!(text, "\n## {title}\n\n{about}\n");
        }
        let meaning = super::reference::capital(code.text());
        let (number, name) = (code.number(), code.name());
        let _ = write!(text, "\n### E{number:02} {name}\n\n{meaning}.\n\n{}\n", remedy(*code));
    }
    text
}
