//! Recurrent layers: gates are stacked along one axis and cut one by one.

use common::{Dim, plan::RecurrentKind};

use super::{GraphError, Op, Param, ParamId, ValueId, build::Builder, uncut::Reason};

/// Parameters of a recurrent layer: `W`, `R` and `B`.
#[derive(Clone, PartialEq, Debug)]
pub struct RecurrentParams {
    /// `W`: gates by inputs.
    pub weight: Param,
    /// `R`: gates by units.
    pub recurrent: Param,
    /// `B`: biases of the products with `W`, then of those with `R`.
    pub bias: Option<Param>,
}

impl RecurrentParams {
    /// `NAME.W`, `NAME.R` and, if the layer has one, `NAME.B`.
    pub fn named(name: &str, bias: bool) -> Self {
        let [weight, recurrent, both] = ["W", "R", "B"].map(|kind| Param::plain(format!("{name}.{kind}")));
        Self { weight, recurrent, bias: Some(both).filter(|_| bias) }
    }
}

/// Parameters of stacked gates, and the shape of the states.
struct Stacked {
    weight: ParamId,
    recurrent: ParamId,
    bias: Option<ParamId>,
    shape: [Dim; 2],
}

impl Builder {
    /// A GRU over `[steps][inputs]`; parameters as in [`common::plan::Gru`].
    pub fn gru(
        &mut self,
        name: &str,
        input: ValueId,
        units: u32,
        reset_after: bool,
        params: RecurrentParams,
    ) -> Result<ValueId, GraphError> {
        let Stacked { weight, recurrent, bias, shape } = self.stacked(name, input, units, 3, params)?;
        Ok(self.push(name, Op::Gru { weight, recurrent, bias, reset_after }, &[input], &shape))
    }

    /// An LSTM or a plain layer over `[steps][inputs]`; parameters as in [`common::plan::Recurrent`].
    pub fn recurrent(
        &mut self,
        name: &str,
        input: ValueId,
        units: u32,
        kind: RecurrentKind,
        params: RecurrentParams,
    ) -> Result<ValueId, GraphError> {
        let Stacked { weight, recurrent, bias, shape } =
            self.stacked(name, input, units, kind.gates(), params)?;
        Ok(self.push(name, Op::Recurrent { kind, weight, recurrent, bias }, &[input], &shape))
    }

    fn stacked(
        &mut self,
        name: &str,
        input: ValueId,
        units: u32,
        gates: u32,
        params: RecurrentParams,
    ) -> Result<Stacked, GraphError> {
        let RecurrentParams { weight, recurrent, bias } = params;
        let [weight, recurrent] = [weight, recurrent].map(|param| param.directed(2));
        let bias = bias.map(|bias| bias.directed(1));
        let [steps, from] = self.shape(input).dims[..] else {
            let got = self.sizes(input);
            return Err(self.wrong(name, format!("takes [steps, numbers], but its input has shape {got:?}")));
        };
        self.axes.pin(&steps, name, Reason::Positions);
        let to = self.units(name, units)?;
        let stacked = |blocks| to.repeated(blocks);
        let weight = self.param(weight, &[stacked(gates), from])?;
        let recurrent = self.param(recurrent, &[stacked(gates), to])?;
        let bias = bias.map(|bias| self.param(bias, &[stacked(2 * gates)])).transpose()?;
        Ok(Stacked { weight, recurrent, bias, shape: [steps, to] })
    }
}
