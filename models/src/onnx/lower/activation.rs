//! Activations that are one node.

use common::plan::{Activation, SELU_ALPHA, SELU_GAMMA};

use super::{Importer, float, problem, spelled::near, text};
use crate::onnx::{
    import::{ImportError, title, unsupported},
    proto::NodeProto,
    view::TensorView,
};

impl<'a> Importer<'a> {
    pub(super) fn activation(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let alpha = |default: f32| float(node, "alpha").unwrap_or(default);
        let kind = match node.op_type.as_str() {
            "Relu" => Activation::Relu,
            "LeakyRelu" => Activation::LeakyRelu { slope: alpha(0.01) },
            "Sigmoid" => Activation::Sigmoid,
            "Tanh" => Activation::Tanh,
            "Gelu" => match text(node, "approximate").as_deref() {
                None | Some("none") => Activation::Gelu,
                Some("tanh") => Activation::GeluTanh,
                Some(other) => return Err(problem(node, format!("has approximation '{other}'"))),
            },
            "Swish" if alpha(1.0) == 1.0 => Activation::Silu,
            "Swish" => return Err(problem(node, "has an alpha other than 1")),
            "Mish" => Activation::Mish,
            "HardSwish" => Activation::HardSwish,
            "HardSigmoid" => {
                Activation::HardSigmoid { alpha: alpha(0.2), beta: float(node, "beta").unwrap_or(0.5) }
            }
            "Elu" => Activation::Elu { alpha: alpha(1.0) },
            "Selu" => {
                let gamma = float(node, "gamma").unwrap_or(SELU_GAMMA);
                let usual = near(alpha(SELU_ALPHA).into(), SELU_ALPHA.into())
                    && near(gamma.into(), SELU_GAMMA.into());
                match usual {
                    true => Activation::Selu,
                    false => return Err(problem(node, "has other constants than those of its authors")),
                }
            }
            "Celu" => Activation::Celu { alpha: alpha(1.0) },
            "Softplus" => Activation::Softplus,
            "Softsign" => Activation::Softsign,
            "Clip" => {
                let (min, max) = self.source.bounds(node)?;
                Activation::Clip { min, max }
            }
            "Min" | "Max" => return self.bound(node),
            _ => return Err(unsupported(node)),
        };
        let view = self.input(node, 0)?;
        self.activate(node, view, kind)
    }

    /// Min or Max of a computed value and one constant.
    fn bound(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let number = |name: &String| self.source.number(name).map(|number| number as f32);
        let (place, bound) = match &node.input[..] {
            [a, b] => match (number(a), number(b)) {
                (None, Some(bound)) => (0, bound),
                (Some(bound), None) => (1, bound),
                _ => return Err(problem(node, "is supported with one computed value and one number")),
            },
            _ => return Err(problem(node, "is supported with one computed value and one number")),
        };
        let kind = match node.op_type.as_str() {
            "Min" => Activation::Clip { min: f32::NEG_INFINITY, max: bound },
            _ => Activation::Clip { min: bound, max: f32::INFINITY },
        };
        let view = self.input(node, place)?;
        self.activate(node, view, kind)
    }

    pub(super) fn activate(
        &mut self,
        node: &'a NodeProto,
        view: TensorView,
        kind: Activation,
    ) -> Result<TensorView, ImportError> {
        if !kind.is_sound() {
            return Err(problem(node, format!("cannot be trained as {kind:?}")));
        }
        let value = self.builder.activate(&title(node), view.value, kind);
        Ok(self.named(node, TensorView { value, ..view }))
    }
}
