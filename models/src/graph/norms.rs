//! The normalisations that a [`Builder`] adds. Scales and shifts are cut along with the channels.

use common::Dim;

use super::{GraphError, Groups, Op, Param, ValueId, build::Builder};

impl Builder {
    /// Normalises over the last `axes` axes; with a scale and a bias, a scale only, or neither.
    pub fn layer_norm(
        &mut self,
        name: &str,
        input: ValueId,
        axes: u8,
        epsilon: f32,
        [scale, bias]: [Option<Param>; 2],
    ) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.clone();
        let over = dims.len().checked_sub(axes.into()).and_then(|at| dims.get(at..)).unwrap_or_default();
        if over.is_empty() {
            return Err(self.wrong(name, format!("normalises {axes} axes of {:?}", self.sizes(input))));
        }
        if scale.is_none() && bias.is_some() {
            return Err(self.wrong(name, "has a bias and no scale"));
        }
        self.epsilon(name, epsilon)?;
        let scale = scale.map(|scale| self.param(scale, over)).transpose()?;
        let bias = bias.map(|bias| self.param(bias, over)).transpose()?;
        Ok(self.push(name, Op::LayerNorm { axes, epsilon, scale, bias }, &[input], &dims))
    }

    /// Normalises groups of channels of `[channels][..]`.
    pub fn group_norm(
        &mut self,
        name: &str,
        input: ValueId,
        groups: Groups,
        epsilon: f32,
        [scale, bias]: [Param; 2],
    ) -> Result<ValueId, GraphError> {
        let (dims, channels) = self.channels(name, input)?;
        let count = self.axes.size(&channels) as u32;
        if let Groups::Count(groups) = groups
            && (groups == 0 || !count.is_multiple_of(groups))
        {
            return Err(self.wrong(name, format!("{count} channels do not fall into {groups} groups")));
        }
        self.epsilon(name, epsilon)?;
        let (scale, bias) = (self.param(scale, &[channels])?, self.param(bias, &[channels])?);
        Ok(self.push(name, Op::GroupNorm { groups, epsilon, scale, bias }, &[input], &dims))
    }

    /// `stats` are the initial mean and variance; by default 0 and 1.
    pub fn batch_norm(
        &mut self,
        name: &str,
        input: ValueId,
        epsilon: f32,
        [scale, bias]: [Param; 2],
        stats: Option<[Vec<f32>; 2]>,
    ) -> Result<ValueId, GraphError> {
        let (dims, channels) = self.channels(name, input)?;
        let count = self.axes.size(&channels);
        let [mean, variance] = stats.unwrap_or_else(|| [vec![0.0; count], vec![1.0; count]]);
        if mean.len() != count || variance.len() != count || variance.iter().any(|&x| x < 0.0) {
            let text = format!("needs {count} means and as many variances, none of them negative");
            return Err(self.wrong(name, text));
        }
        self.epsilon(name, epsilon)?;
        let (scale, bias) = (self.param(scale, &[channels])?, self.param(bias, &[channels])?);
        let value = self.push(name, Op::BatchNorm { epsilon, scale, bias }, &[input], &dims);
        self.stats[value.index() - 1] = [mean, variance].concat();
        Ok(value)
    }

    fn channels(&mut self, name: &str, input: ValueId) -> Result<(Vec<Dim>, Dim), GraphError> {
        let dims = self.shape(input).dims.to_vec();
        match dims.first().copied() {
            Some(channels) => Ok((dims, channels)),
            None => Err(self.wrong(name, "has an input without axes")),
        }
    }

    fn epsilon(&self, name: &str, epsilon: f32) -> Result<(), GraphError> {
        match epsilon > 0.0 && epsilon.is_finite() {
            true => Ok(()),
            false => Err(self.wrong(name, format!("epsilon is {epsilon}; it must be positive"))),
        }
    }
}
