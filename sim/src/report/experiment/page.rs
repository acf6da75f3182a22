//! The report of experiments as one self-contained page: no network, no script.

use super::{
    digest::{Digest, ExperimentDigest},
    plots, tables,
};
use crate::{claims::ClaimVerdict, results::figure};
use ::plots::{
    PLOT_STYLE, STYLE,
    markup::{Element, el},
    number,
    series::legend,
};

/// Additional styles for pages of experiments.
const OWN_STYLE: &str = include_str!("experiment.css");

/// A complete HTML document.
pub fn html(digest: &Digest) -> String {
    let head = el("head")
        .with(el("meta").set("charset", "utf-8"))
        .with(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .with(el("title").text("FairTier: experiments"))
        .with(el("style").text(PLOT_STYLE).text(STYLE).text(OWN_STYLE));
    let main = el("main")
        .with(header(digest))
        .with(cards(digest))
        .all((!digest.experiments.is_empty()).then(|| contents(digest)))
        .all((!digest.sources.is_empty()).then(|| claims(digest)))
        .all(digest.experiments.iter().map(experiment))
        .with(el("footer").text(
            "Written by fairtier sim report from saved results. The same numbers: fairtier sim report --format json. \
             Hover over a mark or line to read it.",
        ));
    let page = el("html").set("lang", "en").with(head).with(el("body").with(main));
    format!("<!DOCTYPE html>\n{page}\n")
}

fn header(digest: &Digest) -> Element {
    let runs: usize =
        digest.experiments.iter().flat_map(|e| &e.settings).map(|setting| setting.seeds.len()).sum();
    let lead = if runs == 0 {
        "There are no results yet. Create some with fairtier sim run EXPERIMENT.".to_owned()
    } else if digest.sources.is_empty() {
        format!("Runs: {runs}. Experiments: {}.", digest.experiments.len())
    } else {
        "Claims of papers on fair federated learning, and our results.".to_owned()
    };
    let numbers = match digest.experiments.iter().any(ExperimentDigest::predicts_numbers) {
        true => {
            " Losses of predicted numbers are squared errors of scaled numbers; absolute errors are in the unit of the file."
        }
        false => "",
    };
    let ratio = if digest.sources.is_empty() { "" } else { " Ratio is ours to published." };
    el("header")
        .with(el("h1").text("Experiments"))
        .with(el("p").class("lead").text(lead))
        .with(el("p").class("soft").text(format_args!(
            "± is the standard deviation over seeds (divisor runs − 1), [..] a 95 % interval of the mean. Losses in nats; \
             variances over devices have divisor N, those of accuracy in percent squared.{numbers}{ratio}",
        )))
}

fn cards(digest: &Digest) -> Element {
    let settings = || digest.experiments.iter().flat_map(|experiment| &experiment.settings);
    let runs: usize = settings().map(|setting| setting.seeds.len()).sum();
    let missing: usize = settings().map(|setting| setting.missing.len()).sum();
    let all: Vec<ClaimVerdict> =
        digest.sources.iter().flat_map(|s| &s.claims).map(|claim| claim.verdict).collect();
    let count = |verdict| all.iter().filter(|found| **found == verdict).count();
    let card = |title: &str, big: String, class: &str, note: String| {
        el("div")
            .class("card")
            .with(el("h3").text(title))
            .with(el("p").class(format_args!("big {class}")).text(big))
            .with(el("p").class("soft").text(note))
    };
    let seconds: f64 = settings().map(|setting| setting.seconds).sum();
    let claims = [
        card(
            "Claims reached",
            (count(ClaimVerdict::Reached) + count(ClaimVerdict::ByVariant)).to_string(),
            "good",
            format!("of {} that were run, {} by our variant", all.len(), count(ClaimVerdict::ByVariant)),
        ),
        card(
            "In part / contradicted / undecided",
            format!(
                "{} / {} / {}",
                count(ClaimVerdict::InPart),
                count(ClaimVerdict::Contradicted),
                count(ClaimVerdict::Undecided)
            ),
            if count(ClaimVerdict::Contradicted) > 0 { "bad" } else { "" },
            "of the same".into(),
        ),
    ];
    let claims = claims.into_iter().filter(|_| !all.is_empty());
    el("section").class("cards").set("aria-label", "Summary").all(claims).all([
        card(
            "Runs",
            runs.to_string(),
            "",
            if missing == 0 { "none missing".into() } else { format!("{missing} missing") },
        ),
        card(
            "Machine time",
            number::seconds(seconds),
            "",
            "of all runs, including the choice of parameters".into(),
        ),
    ])
}

fn anchor(experiment: &ExperimentDigest) -> String {
    format!("{}-{}", experiment.experiment, experiment.profile)
}

fn contents(digest: &Digest) -> Element {
    let entry = |experiment: &ExperimentDigest| {
        let link = el("a").set("href", format_args!("#{}", anchor(experiment))).text(&experiment.title);
        el("li").with(link).with(el("span").class("soft").text(format_args!(" {}", experiment.profile)))
    };
    el("nav")
        .set("aria-label", "Experiments")
        .with(el("ul").class("contents").all(digest.experiments.iter().map(entry)))
}

fn claims(digest: &Digest) -> Element {
    el("section")
        .set("aria-labelledby", "claims")
        .with(el("h2").set("id", "claims").text("Claims"))
        .with(el("p").text(
            "A direction is reached if the mean over seeds lies on the claimed side in every check that was run; \
             fairtier sim reproduce writes all checks.",
        ))
        .with(tables::claims(digest))
}

fn experiment(experiment: &ExperimentDigest) -> Element {
    let id = anchor(experiment);
    let about =
        format!("{}, profile {}, {} rounds", experiment.experiment, experiment.profile, experiment.rounds);
    let section = el("section")
        .class("experiment")
        .set("aria-labelledby", &id)
        .with(el("h2").set("id", &id).text(&experiment.title))
        .with(el("p").class("soft").text(about))
        .all((!experiment.notes.trim().is_empty()).then(|| el("p").text(experiment.notes.trim())))
        .all(missing(experiment))
        .all(diverged(experiment));
    let checks = tables::checks(experiment);
    let section =
        section.all(checks.map(|table| el("div").with(el("h3").text("Paper against ours")).with(table)));
    if experiment.run().next().is_none() {
        return section.with(details("Settings", tables::settings(experiment)));
    }
    section
        .with(el("h3").text("All figures"))
        .with(tables::figures(experiment))
        .with(legend(experiment.run().map(|(index, setting)| (index, setting.label.as_str()))))
        .with(el("div").class("pair").all(overview(experiment)))
        .with(losses(experiment))
        .with(el("h3").text("By round"))
        .with(el("p").class("soft").text(
            "Scores of the model that devices received, over the devices that took part, and at the end over all. Bands: one \
             standard deviation over seeds.",
        ))
        .with(el("div").class("panels").all(plots::curves(experiment)))
        .all(targets(experiment))
        .all(prices(experiment))
        .with(el("h3").text("By tier"))
        .with(el("div").class("panels").all(plots::costs(experiment)))
        .with(details("Figures by tier", tables::tiers(experiment)))
        .with(details("Settings", tables::settings(experiment)))
}

/// Disparity, target and driven parameter by round; `None` without fairness targets.
fn targets(experiment: &ExperimentDigest) -> Option<Element> {
    let panels = plots::targets(experiment);
    (!panels.is_empty()).then(|| {
        el("div")
            .with(el("h3").text("Fairness target"))
            .with(el("p").class("soft").text(
                "Disparity of the losses that the controller measures, with the target as a broken line, and the parameter that it \
                 sets. Settings without a target have no line.",
            ))
            .with(el("div").class("panels").all(panels))
    })
}

/// Settings with a target against the same without fairness; `None` if none was run.
fn prices(experiment: &ExperimentDigest) -> Option<Element> {
    let table = tables::prices(experiment)?;
    Some(el("div").with(el("h3").text("Price of fairness")).with(table))
}

/// A note about missing runs.
fn missing(experiment: &ExperimentDigest) -> Option<Element> {
    let missing = experiment.missing();
    (!missing.is_empty()).then(|| {
        el("div")
            .class("note")
            .set("role", "note")
            .with(el("strong").text("Results are incomplete."))
            .with(el("ul").all(missing.iter().map(|line| el("li").text(line))))
    })
}

/// A note about diverged runs.
fn diverged(experiment: &ExperimentDigest) -> Option<Element> {
    let diverged = experiment.diverged();
    (!diverged.is_empty()).then(|| {
        el("div")
            .class("note")
            .set("role", "note")
            .with(el("strong").text(
                "Runs diverged: their loss is not finite, or more than twice that of the start, or no update was finite. Plots have the \
                 scale of the others. Lower training.lr, or scale the inputs.",
            ))
            .with(el("ul").all(diverged.iter().map(|line| el("li").text(line))))
    })
}

fn overview(experiment: &ExperimentDigest) -> Vec<Element> {
    let figure =
        |plot: Element, caption: String| el("figure").with(plot).with(el("figcaption").text(caption));
    let (unfair, good) = plots::judged(experiment);
    let mut figures = vec![figure(
        plots::pareto(experiment),
        format!(
            "Fairness against quality: {} and {}, with one standard deviation over seeds. The broken line joins \
                 settings that no other setting beats in both.",
            figure::title(unfair),
            figure::title(good)
        ),
    )];
    if !experiment.predicts_numbers() {
        figures.push(figure(
            plots::lorenz(experiment),
            "How evenly accuracy is spread over devices (first finished seed); on the diagonal all are equal. \
             Gini indices are in the table of settings."
                .into(),
        ));
    }
    figures
}

/// The plot of every device's loss.
fn losses(experiment: &ExperimentDigest) -> Element {
    let tiers = if experiment.tiers() > 1 { " Lanes of a row are tiers, the widest on top." } else { "" };
    let some = experiment.settings.iter().any(|setting| !experiment.scales(setting));
    let edge = if some { " Devices of diverged runs are at the right edge." } else { "" };
    let caption = format!(
        "Every device of the first finished seed; boxes are quartiles, lines 5 to 95 %.{tiers}{edge}"
    );
    el("figure").class("wide").with(plots::losses(experiment)).with(el("figcaption").text(caption))
}

fn details(title: &str, inside: Element) -> Element {
    el("details").with(el("summary").text(title)).with(inside)
}
