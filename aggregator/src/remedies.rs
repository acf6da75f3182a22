//! What to do about each numbered error. The texts stand here, not with [`Code`], so that boards do not carry them.

use common::Code;

/// The next step for the operator who meets this code.
pub fn remedy(code: Code) -> &'static str {
    REMEDIES.iter().find(|(known, _)| *known == code).map_or("Update this program.", |(_, remedy)| remedy)
}

/// A code as logs print it (`E33`), or its number.
pub(crate) fn parse(text: &str) -> Result<Code, String> {
    let number = text.trim_start_matches(['E', 'e']).parse().ok();
    number
        .and_then(Code::of)
        .ok_or_else(|| "a code of the table that `fairtier codes` prints, as in E33".to_owned())
}

const REMEDIES: &[(Code, &str)] = &[
    (
        Code::BadFrame,
        "The link delivers damaged bytes, or the peer is not FairTier. Devices retry by themselves. If it persists on a serial line, \
         lower the baud rate or use a shorter cable. On a network, check that the port belongs to the gateway.",
    ),
    (
        Code::BadChecksum,
        "Bytes were damaged on the way. The frame is sent again. If it persists on a serial line, lower the baud rate, or enable \
         hardware flow control.",
    ),
    (
        Code::WrongVersion,
        "Update the older one of gateway and device. `fairtier --version` prints the version. The device waits and retries meanwhile.",
    ),
    (
        Code::BadMessage,
        "Gateway and device disagree about a message. Update both to the same version. If they are the same, report a bug with both logs.",
    ),
    (
        Code::TooLong,
        "Raise `server.max_message` in `fairtier.toml`, or choose a smaller model or another codec in `[wire]`.",
    ),
    (
        Code::Unexpected,
        "Nothing, if it is rare: the device opens its link again. If it repeats, update both ends and report a bug with both logs.",
    ),
    (
        Code::Unlisted,
        "The peer is newer than this program. Update this program, or read the peer's own log: it names the error.",
    ),
    (
        Code::WrongShape,
        "The device answered for another model or tier. Restart the device. If it repeats, update the device.",
    ),
    (
        Code::EmptyShard,
        "Give the device samples: check `--csv` or `--images`, `--share` and `--test-fraction`. On a board, run `fairtier board \
         provision`, or flash it with `--shard`.",
    ),
    (
        Code::NonFiniteUpdate,
        "Training diverged on this device. Lower `training.lr`, set `training.clip`, or scale the features with `--scale`.",
    ),
    (
        Code::NonFiniteLoss,
        "Training diverged on this device. Lower `training.lr`, set `training.clip`, or scale the features with `--scale`.",
    ),
    (
        Code::WrongRound,
        "Nothing: the device was late, or the gateway went back with `rollback`. The device takes part in the next round. If it \
         happens in every round, raise `round.deadline_s` for its tier.",
    ),
    (Code::Duplicate, "Nothing: the update is counted once."),
    (
        Code::WrongModel,
        "Nothing, after `fairtier gateway rollback` or a restored backup: the device fetches the present model. If it repeats, restart the device.",
    ),
    (
        Code::RoundClosed,
        "The device was late. If it happens often, raise `round.deadline_s` or `round.quorum` for its tier, or give it a narrower tier.",
    ),
    (Code::NotSelected, "Nothing: with `round.participation` below 1 a round asks only some of the devices."),
    (
        Code::ImplausibleLoss,
        "Reserved for older gateways. Compare the device's loss with others: its labels may be in the wrong column.",
    ),
    (
        Code::ImplausibleNorm,
        "Reserved for older gateways. Compare the length of the device's update with others: its features may lack `--scale`.",
    ),
    (
        Code::ImplausibleSamples,
        "The device states a score over more samples than it has, or none. Restart the device. If it repeats, its program is damaged or \
         hostile: revoke it.",
    ),
    (
        Code::PointsAway,
        "The probe left the device out. Check its labels. If its data is rare rather than wrong, add such samples to the file of `guard.probe`.",
    ),
    (
        Code::UnknownDevice,
        "Enrol the device with `fairtier gateway enroll`, or give it a token. If it was enrolled, `fairtier gateway members` shows whether it was \
         revoked or has expired.",
    ),
    (
        Code::WrongIdentity,
        "Start the device with the name it was enrolled under: leave out `--device`, and keep the identity file's name.",
    ),
    (
        Code::BadCertificate,
        "The identity belongs to another gateway, or has expired. Check `--server` and the clock of the gateway. Enrol again with \
         `fairtier gateway enroll --replace NAME`, or trade a token of `fairtier gateway token --replace NAME`.",
    ),
    (
        Code::DoesNotFit,
        "Raise `--ram` or `--flash` if the device has more. Otherwise add a narrower tier to `model.tiers`, or train the last \
         layers only with `last`. `fairtier model plan --ram` prints the need of a tier to the byte.",
    ),
    (
        Code::WrongData,
        "Compare the columns of the data with the model's inputs and classes: `fairtier model inspect` prints them. Labels count from 0. \
         FedFB and FairFed need two classes.",
    ),
    (
        Code::BadPlan,
        "The device has less memory than it stated, or the message was damaged. State `--ram` correctly. On a board, flash firmware of \
         the gateway's version.",
    ),
    (
        Code::Busy,
        "Nothing: the device waits and tries again. If it lasts, raise `server.max_connections` or `server.max_per_address`.",
    ),
    (
        Code::NotReady,
        "Nothing at first: the device tries again. If it lasts, read the gateway's log: a file in `identity/` may be unreadable, or the disk may fail.",
    ),
    (
        Code::NoValidation,
        "Give the device more samples: EAGLE keeps a part of them for validation. Or choose another strategy.",
    ),
    (
        Code::NoGroups,
        "Name the column with `--attribute COLUMN`, and its number of values with `--attributes N`. Or choose a strategy without groups.",
    ),
    (
        Code::NoBaseline,
        "Nothing: EAGLE asks the device to train alone again, and the device rejoins in the next round.",
    ),
    (
        Code::LeftOut,
        "The board's firmware lacks an operation that the strategy or the model asks for. Set `ops = \"conv\"` or `\"all\"` in the board's \
         description and build it again, or choose a plain strategy. The round goes on without the board.",
    ),
    (
        Code::TierNotAllowed,
        "Enrol the device with other `--tiers` and `--replace`, or give it memory for a tier that it may use.",
    ),
    (
        Code::Displaced,
        "Two processes use one identity. Stop one of them, and enrol a name for each. If you started only one, the identity was copied: \
         revoke it.",
    ),
    (
        Code::NoiseTooWeak,
        "Lower `eps` of the strategy, or raise the device's `--max-epsilon`. A board without a secret must be flashed again with `fairtier \
         board flash`.",
    ),
    (
        Code::PrivacySpent,
        "The device has given all answers that its owner allows. The owner can raise `--max-private-rounds`; each answer reveals more.",
    ),
    (
        Code::AlreadyEnrolled,
        "Make a token that may replace the present identity: `fairtier gateway token --replace NAME`. Or choose another name.",
    ),
    (
        Code::TooOld,
        "Update the program of the device: the model has an operation that it does not know. The gateway's log states both protocol versions.",
    ),
    (
        Code::BadConfig,
        "Correct the key that the message names. `fairtier gateway init` in an empty directory writes a documented `fairtier.toml`; the reference \
         lists every key.",
    ),
    (
        Code::BadModel,
        "Run `fairtier model check FILE`: it names the node that is not supported, and a change that would work. Check the path in \
         `model.source`, which is relative to `fairtier.toml`. Weights in a second file, such as `net.onnx.data`, must be in the same folder.",
    ),
    (
        Code::StoreDamaged,
        "Stop the server and run `fairtier gateway verify`, which names every damaged file. Go back to a kept model with `fairtier gateway \
         rollback`, or restore a backup. If the model or the configuration was changed, begin a new directory.",
    ),
    (
        Code::StoreFailed,
        "The disk is full or fails. Free some space, then run `fairtier gateway resume`. No acknowledged update is lost.",
    ),
    (
        Code::NonFiniteResult,
        "The old model was kept and the run goes on. Lower `training.lr` or the strategy's step, or set `training.clip`.",
    ),
    (
        Code::EmptyRound,
        "No device delivered a usable update. `fairtier gateway status` shows why devices were refused. Raise `round.deadline_s` if they \
         are slow.",
    ),
    (
        Code::Diverged,
        "Scale the inputs and targets to about -1 to 1 (`fairtier data schema`), or lower `training.lr`. Then continue with `fairtier \
         gateway resume`. `run.divergence` sets the bound.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_remedy() {
        let named: Vec<Code> = REMEDIES.iter().map(|&(code, _)| code).collect();
        assert_eq!(named, Code::ALL);
    }

    #[test]
    fn codes_as_logs_print_them() {
        assert_eq!(parse("E33"), Ok(Code::DoesNotFit));
        assert_eq!(parse("1"), Ok(Code::BadFrame));
        assert!(["E99", "", "E", "x33"].iter().all(|text| parse(text).is_err()));
    }

    #[test]
    fn sentences_are_short() {
        for (code, remedy) in REMEDIES {
            let long = remedy
                .split_inclusive(['.', ':', ';'])
                .find(|sentence| sentence.split_whitespace().count() > 25);
            assert_eq!(long, None, "{code}");
        }
    }
}
