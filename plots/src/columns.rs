//! One group of columns per tier, one column per series.

use crate::{
    frame::{Frame, described, text},
    markup::{Element, el},
    scale::Scale,
    series::class,
};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
const FRAME: Frame = Frame { left: 56.0, right: WIDTH - 12.0, top: 30.0, bottom: HEIGHT - 48.0 };

/// The plot.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Of the values.
    pub unit: &'a str,
    /// Fixed end of the axis, such as 100 %.
    pub top: Option<f64>,
    /// One column per tier each.
    pub series: Vec<ColumnSeries<'a>>,
}

/// One value per tier.
#[derive(Clone, Debug)]
pub struct ColumnSeries<'a> {
    /// Selects the colour.
    pub index: usize,
    /// As the legend has it.
    pub name: &'a str,
    /// Values by tier.
    pub values: Vec<f64>,
}

impl Columns<'_> {
    /// The plot as SVG.
    pub fn draw(&self) -> Element {
        let values =
            || self.series.iter().flat_map(|series| series.values.iter().copied()).filter(|x| x.is_finite());
        let top = self.top.unwrap_or_else(|| values().fold(0.0, f64::max) * 1.05).max(1e-9);
        let y = Scale::linear((0.0, top), (FRAME.bottom, FRAME.top));
        let tiers = self.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let group = (FRAME.right - FRAME.left) / tiers.max(1) as f64;
        let bar = group * 0.8 / self.series.len().max(1) as f64;
        let column = |tier: usize, at: usize, series: &ColumnSeries<'_>| {
            let value = series.values.get(tier).copied().filter(|value| value.is_finite())?;
            let upper = y.at(value);
            Some(
                el("rect")
                    .class(format_args!("column {}", class(series.index)))
                    .at("x", FRAME.left + tier as f64 * group + group * 0.1 + at as f64 * bar)
                    .at("y", upper)
                    .at("width", (bar - 1.0).max(0.8))
                    .at("height", FRAME.bottom - upper)
                    .hint(format_args!("{}, tier {tier}: {} {}", series.name, short(value), self.unit)),
            )
        };
        let groups = (0..tiers).map(|tier| {
            let middle = FRAME.left + (tier as f64 + 0.5) * group;
            el("g")
                .all(self.series.iter().enumerate().filter_map(|(at, series)| column(tier, at, series)))
                .with(text(middle, FRAME.bottom + 17.0, "middle", &format!("Tier {tier}")).class("row"))
        });
        described(WIDTH, HEIGHT, self.title, &self.about())
            .with(text(8.0, 17.0, "start", self.title).class("panel"))
            .with(FRAME.rows(&y, &y.ticks(5)))
            .all(groups)
            .with(FRAME.name_x(self.unit))
    }

    fn about(&self) -> String {
        let series = self.series.iter().map(|series| {
            let values: Vec<String> = series.values.iter().map(|&value| short(value)).collect();
            format!("{} {}", series.name, values.join(", "))
        });
        format!(
            "{} in {}, tier by tier, widest first: {}.",
            self.title,
            self.unit,
            series.collect::<Vec<_>>().join("; ")
        )
    }
}

fn short(value: f64) -> String {
    crate::number::figure(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_column_per_tier_and_series() {
        let series = vec![
            ColumnSeries { index: 0, name: "a", values: vec![1.0, 2.0] },
            ColumnSeries { index: 1, name: "b", values: vec![1.0, f64::NAN] },
        ];
        let text = Columns { title: "Bytes", unit: "MB", top: None, series }.draw().to_string();
        assert_eq!(text.matches("<rect").count(), 3);
        assert!(text.contains("a 1.00, 2.00; b 1.00, –"), "{text}");
        let none = Columns { title: "", unit: "", top: None, series: vec![] };
        assert!(none.draw().to_string().starts_with("<svg"));
    }
}
