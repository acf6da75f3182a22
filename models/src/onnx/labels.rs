//! Finds the names of classes behind the probabilities of a classifier, as skl2onnx and [`super::export()`] write them:
//!
//! ```text
//! probabilities -> ZipMap(classes) -> output
//! probabilities -> ArgMax -> ArrayFeatureExtractor or Gather of the classes -> Cast, Reshape -> output
//! ```

use super::{
    constants::is_default_domain,
    import::SourceModel,
    proto::{AttributeProto, NodeProto},
};
use crate::graph::{Classes, Labels};

/// The labels of a model whose probabilities are the output `chosen`.
pub fn labels(source: &SourceModel<'_>, chosen: &str) -> Option<Labels> {
    let (probabilities, map) = probabilities(source, chosen);
    let others = source.graph.output.iter().filter(|output| output.name != chosen);
    let label = |name: &str| Some((name.to_owned(), label_classes(source, name, &probabilities)?));
    let found = others.filter_map(|output| label(&output.name)).next();
    let (output, of_label) = found.map_or((None, None), |(name, classes)| (Some(name), Some(classes)));
    let of_map = map.and_then(map_classes);
    let mapped = of_map.is_some();
    match (of_map, of_label) {
        // Both outputs name the same classes, or the label is left out.
        (Some(map), Some(label)) if map != label => Some(Labels { classes: map, output: None, mapped }),
        (map, label) => Some(Labels { classes: map.or(label)?, output, mapped }),
    }
}

/// The names that the probabilities have, and the node that maps them to classes.
fn probabilities<'a>(source: &SourceModel<'a>, chosen: &'a str) -> (Vec<&'a str>, Option<&'a NodeProto>) {
    let (mut names, mut map) = (vec![chosen], None);
    while let Some(node) = names.last().and_then(|name| source.producer(name)).filter(|node| renames(node)) {
        map = map.or(Some(node).filter(|node| node.op_type == "ZipMap"));
        let Some(input) = node.input.first().filter(|input| !names.contains(&input.as_str())) else { break };
        names.push(input);
    }
    (names, map)
}

/// The classes that an output chooses from by the largest of these probabilities.
fn label_classes(source: &SourceModel<'_>, output: &str, probabilities: &[&str]) -> Option<Classes> {
    let shaped =
        |node: &NodeProto| matches!(node.op_type.as_str(), "Identity" | "Cast" | "Reshape" | "Squeeze");
    let choice = before(source, output, shaped)?;
    let chooses = match choice.op_type.as_str() {
        "ArrayFeatureExtractor" => choice.domain == "ai.onnx.ml",
        "Gather" => {
            is_default_domain(choice) && attribute(choice, "axis").and_then(|axis| axis.i).unwrap_or(0) == 0
        }
        _ => false,
    };
    let [classes, index] = &choice.input[..] else { return None };
    let largest = before(source, index, shaped)?;
    let axis = attribute(largest, "axis").and_then(|axis| axis.i).unwrap_or(0);
    let first = attribute(largest, "select_last_index").and_then(|last| last.i).unwrap_or(0) == 0;
    let argmax = largest.op_type == "ArgMax" && is_default_domain(largest) && matches!(axis, 1 | -1) && first;
    let of = largest.input.first()?;
    let origin = std::iter::successors(Some(of.as_str()), |name| {
        source.producer(name).filter(|node| node.op_type == "Identity")?.input.first().map(String::as_str)
    });
    let known = origin.take(source.graph.node.len() + 1).any(|name| probabilities.contains(&name));
    (chooses && argmax && known).then(|| source.constants.classes(classes))?
}

/// The node that computes a value, behind nodes that only change its form.
fn before<'a>(
    source: &SourceModel<'a>,
    value: &str,
    form: impl Fn(&NodeProto) -> bool,
) -> Option<&'a NodeProto> {
    let mut node = source.producer(value)?;
    // Bounded by the number of nodes, because a damaged file may have cycles.
    for _ in 0..source.graph.node.len() {
        if !form(node) {
            return Some(node);
        }
        node = source.producer(node.input.first()?)?;
    }
    None
}

fn map_classes(node: &NodeProto) -> Option<Classes> {
    let names = attribute(node, "classlabels_strings").filter(|names| !names.strings.is_empty());
    match names {
        Some(names) => text(&names.strings),
        None => Some(Classes::Numbers(attribute(node, "classlabels_int64s")?.ints.clone())),
    }
}

/// Names of classes; `None` if one of them is not UTF-8.
pub fn text(strings: &[Vec<u8>]) -> Option<Classes> {
    let names = strings.iter().map(|name| String::from_utf8(name.clone()).ok());
    names.collect::<Option<Vec<_>>>().map(Classes::Names)
}

/// True if the node passes its input on under another name.
pub fn renames(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "Identity" | "ZipMap" | "Cast")
}

fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}
