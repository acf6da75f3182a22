//! The result for people.

use std::fmt::Write as _;

use super::{AttackResult, OFF};

/// One line per case; changes are relative to the reference.
pub fn table(result: &AttackResult) -> String {
    let mut text = match result.options.guard.trim() {
        "" => "defended: [guard] as it is by default\n".to_owned(),
        keys => format!("defended: [guard] {keys}, all else as it is by default\n"),
    };
    let _ = writeln!(text, "undefended: [guard] {OFF}");
    text += "hostile     F x  n x   updates    tactic | reference loss    var |   undefended loss               var |     defended loss               var | named  honest named\n";
    for row in &result.rows {
        let change = |now: f64, then: f64| match 100.0 * (now / then - 1.0) {
            // Nothing is left of a model that is so far away.
            change if change > 9999.0 => format!("{now:9.0e} >+9999%"),
            change => format!("{now:9.4} {change:>+7.0}%"),
        };
        let (reference, bare, guarded) = (&row.reference, &row.undefended, &row.defended);
        let _ = writeln!(
            text,
            "{:3.0} % {:>2} {:>7} {:>4} {:>9} {:>9} | {:14.4} {:6.4} | {} {} | {} {} | {:>2}/{:<2}  {}",
            100.0 * row.share,
            row.hostile,
            format!("{:e}", row.case.inflation),
            row.case.samples,
            row.case.updates.name(),
            row.case.tactic.name(),
            reference.loss,
            reference.variance,
            change(bare.loss, reference.loss),
            change(bare.variance, reference.variance),
            change(guarded.loss, reference.loss),
            change(guarded.variance, reference.variance),
            row.named,
            row.hostile,
            row.named_honest,
        );
    }
    text
}
