//! EAGLE, section 3.4 of the experiments.

use super::{Check, Claim, Measure, Source, Want};

pub const SOURCE: Source = Source {
    name: "EAGLE",
    section: "3.4",
    claims: &[SYNTHETIC, MODERATE, IID_NO_EFFECT, DIRTY],
    doubts: &[
        "The coefficient is 2 in the text and 4 in the appendix.",
        "The text rotates client 2 of the synthetic data, the figures clients 1 and 2; the claim holds in both, the text's form is the default.",
        "Client 0 of the synthetic data is often linearly separable, so its own best loss is approached only asymptotically: epochs are capped.",
        "Table 11's caption says linear, its numbers are the CNN's. Weights lag one round.",
    ],
};

const SYNTHETIC_SET: &str = "eagle-synthetic";
const DIRICHLET: &str = "eagle-dirichlet";

const SYNTHETIC: Claim = Claim {
    id: "3.4.1",
    text: "Synthetic: AFL and q-FFL(5) raise the loss and the gap of client 0; EAGLE does not.",
    checks: &[
        Check {
            what: "AFL: loss of client 0",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "device.0.loss",
                from: "fedavg",
                to: "afl",
                want: Want::HIGHER,
            },
            published: "0.02 to 0.04 → 0.06 to 0.22 (specification's own runs; the source has a figure only)",
            effect: None,
        },
        Check {
            what: "q-FFL(5): loss of client 0",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "device.0.loss",
                from: "fedavg",
                to: "qffl5",
                want: Want::HIGHER,
            },
            published: "rises (figure)",
            effect: None,
        },
        Check {
            what: "AFL: variance of gaps",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "gaps.variance",
                from: "fedavg",
                to: "afl",
                want: Want::HIGHER,
            },
            published: "2e-4 to 7e-4 → 0.006 to 0.019 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "5000 points per client, AFL: loss of client 0",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "device.0.loss",
                from: "large-fedavg",
                to: "large-afl",
                want: Want::HIGHER,
            },
            published: "0.02 to 0.04 → 0.06 to 0.22 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "5000 points per client, AFL: variance of gaps",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "gaps.variance",
                from: "large-fedavg",
                to: "large-afl",
                want: Want::HIGHER,
            },
            published: "2e-4 to 7e-4 → 0.006 to 0.019 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "5000 points per client, EAGLE(5): variance of gaps, never above FedAvg",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "gaps.variance",
                from: "large-fedavg",
                to: "large-eagle5",
                want: Want::AtMost(0.0),
            },
            published: "2e-4 to 7e-4 → 2e-4 to 4e-4 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "100 points, EAGLE(5): variance of gaps on the validation part, never above FedAvg",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "gaps_valid.variance",
                from: "fedavg",
                to: "eagle5",
                want: Want::AtMost(0.0),
            },
            published: "2e-4 to 7e-4 → 2e-4 to 4e-4 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "100 points, EAGLE(5): variance of gaps on test points, never above FedAvg",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "gaps.variance",
                from: "fedavg",
                to: "eagle5",
                want: Want::AtMost(0.0),
            },
            published: "2e-4 to 7e-4 → 2e-4 to 4e-4 (specification's own runs)",
            effect: None,
        },
        Check {
            what: "EAGLE(2) against AFL: loss of client 0",
            experiment: SYNTHETIC_SET,
            measure: Measure::Change {
                figure: "device.0.loss",
                from: "afl",
                to: "eagle2",
                want: Want::LOWER,
            },
            published: "falls (figure)",
            effect: None,
        },
    ],
    doubt: "The specification's figures are gaps on the 100 points that are trained on: computed literally, FedAvg has (.021, .052, .063) there and (.021, .028, .051) on fresh points. In four such draws the gap of client 2 on its 20 validation points is off by up to .19, while gaps differ by .03; on fresh points the literal EAGLE(5) is not above FedAvg in 9 of 16 draws, and in 12 of 12 with 1000 validation points. That is why a variant with 5000 points per client was added once this was known; its variances and losses of client 0 lie in the specification's ranges on test data, its FedAvg gaps, about (.015, .04, .05), a little below.",
};

const fn gap(
    what: &'static str,
    experiment: &'static str,
    figure: &'static str,
    to: &'static str,
    want: Want,
    published: &'static str,
    effect: f64,
) -> Check {
    let measure = Measure::Change { figure, from: "a0.1-fedavg", to, want };
    Check { what, experiment, measure, published, effect: Some(effect) }
}

const MODERATE: Claim = Claim {
    id: "3.4.2",
    text: "EMNIST, alpha = 0.1: a moderate lambda (1) lowers the largest gap and roughly halves the variance of gaps with at most 0.5 points of accuracy lost; a large lambda levels down (the largest gap rises, accuracy falls).",
    checks: &[
        gap(
            "linear, lambda 1: variance of gaps",
            DIRICHLET,
            "gaps.variance",
            "a0.1-eagle1",
            Want::LOWER,
            "0.033 → 0.020",
            -0.394,
        ),
        gap(
            "linear, lambda 1: largest gap",
            DIRICHLET,
            "gaps.max",
            "a0.1-eagle1",
            Want::LOWER,
            "0.106 → 0.073",
            -0.311,
        ),
        Check {
            what: "linear, lambda 1: accuracy, at most 0.5 points lost",
            experiment: DIRICHLET,
            measure: Measure::Difference {
                figure: "accuracy.mean",
                from: "a0.1-fedavg",
                to: "a0.1-eagle1",
                want: Want::AtLeast(-0.005),
            },
            published: "69.2 → 68.7 %",
            effect: Some(-0.005),
        },
        gap(
            "linear, lambda 5: largest gap",
            DIRICHLET,
            "gaps.max",
            "a0.1-eagle5",
            Want::HIGHER,
            "0.106 → 0.203",
            0.915,
        ),
        Check {
            what: "linear, lambda 5: accuracy",
            experiment: DIRICHLET,
            measure: Measure::Difference {
                figure: "accuracy.mean",
                from: "a0.1-fedavg",
                to: "a0.1-eagle5",
                want: Want::LOWER,
            },
            published: "69.2 → 65.0 %",
            effect: Some(-0.042),
        },
        Check {
            what: "CNN, lambda 1: variance of gaps",
            experiment: "",
            measure: Measure::Nothing,
            published: "0.047 → 0.013",
            effect: None,
        },
    ],
    doubt: "MNIST stands in for EMNIST, and the CNN has no experiment. Published deviations over seeds are as large as the gaps themselves (0.106 ± 0.170 → 0.073 ± 0.123).",
};

const IID_NO_EFFECT: Claim = Claim {
    id: "3.4.3",
    text: "IID: no effect.",
    checks: &[
        Check {
            what: "linear, lambda 1: variance of gaps, within 20 %",
            experiment: DIRICHLET,
            measure: Measure::Change {
                figure: "gaps.variance",
                from: "iid-fedavg",
                to: "iid-eagle1",
                want: Want::within(0.2),
            },
            published: "0.017 → 0.018",
            effect: Some(0.059),
        },
        Check {
            what: "linear, lambda 1: accuracy, within half a point",
            experiment: DIRICHLET,
            measure: Measure::Difference {
                figure: "accuracy.mean",
                from: "iid-fedavg",
                to: "iid-eagle1",
                want: Want::within(0.005),
            },
            published: "69.3 → 69.2 %",
            effect: Some(-0.001),
        },
    ],
    doubt: "",
};

const DIRTY: Claim = Claim {
    id: "3.4.4",
    text: "DirtyMNIST: lambda up to 0.5 gives the best worst gap (−0.099), from lambda 1 on accuracy is traded for variance.",
    checks: &[Check {
        what: "DirtyMNIST",
        experiment: "",
        measure: Measure::Nothing,
        published: "largest gap −0.083 (FedAvg) → −0.099 (lambda 0.3); accuracy 88.9 → 84.3 % (lambda 1)",
        effect: None,
    }],
    doubt: "The ambiguous images are not among our data sets.",
};
