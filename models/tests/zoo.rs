//! Every tier of every zoo model: the trainer's forward pass against tract on the exported file.
#![cfg(feature = "tract")]
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

extern crate fairtier_models as models;

use models::{
    infer::TractModel,
    onnx::{ExportOptions, export},
    plan::{PlanOptions, compile},
    zoo,
};
use trainer::train::{Fast, Portable};

mod support;
use support::{Case, worst};

#[test]
fn every_tier_agrees_with_tract() {
    let mut largest = (0.0, String::new());
    for entry in zoo::ALL {
        let (graph, parameters) = entry.build(5);
        for &rate in entry.rates {
            let mask = graph.full().at_rate(rate).unwrap();
            let case = Case::new(graph.clone(), &parameters, mask, 2, 4);
            let slice = graph.slice(&case.mask).unwrap();
            let file = export(&slice, case.parameters(), &ExportOptions::default()).unwrap();
            let expected = TractModel::load(&file).unwrap().logits(&case.features).unwrap();
            for options in [PlanOptions::infer(2), PlanOptions::train(2)] {
                let plan = compile(&graph, &case.mask, &options).unwrap();
                let fast = worst(&case.logits(&plan, &mut Fast::new()), &expected);
                let portable = worst(&case.logits(&plan, &mut Portable::plain()), &expected);
                assert!(fast.max(portable) < 1e-4, "{} at {rate}: {fast} {portable}", entry.name);
                if fast.max(portable) > largest.0 {
                    largest = (fast.max(portable), format!("{} at {rate}", entry.name));
                }
            }
        }
    }
    println!("largest difference: {} ({})", largest.0, largest.1);
}
