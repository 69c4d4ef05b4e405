//! Plots of curves, as SVG.
//!
//! The drawing has no background, and its colours are names that the page replaces by variables of its style sheet,
//! which has a light and a dark set ([`COLORS`], and black for text and axes). The legend is part of the page, beside
//! the drawing.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Size in pixels if the page is wide enough; the page scales the drawing.
const SIZE: (u32, u32) = (460, 320);
/// Colours of the curves on a light page: distinguishable for most readers.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
    RGBColor(86, 180, 233),
    RGBColor(182, 133, 0),
    RGBColor(120, 30, 120),
];

/// A direction of a plot.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) logarithmic: bool,
    /// Ratio of neighbouring labels on a logarithmic axis: sizes and depths double.
    base: f64,
    /// Formats a value of the axis.
    label: fn(f64) -> String,
}

impl Axis {
    pub(super) fn linear(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            logarithmic: false,
            base: 2.0,
            label: short,
        }
    }

    pub(super) fn logarithmic(name: &str) -> Self {
        Self {
            logarithmic: true,
            ..Self::linear(name)
        }
    }

    /// Axis for values over several powers of ten.
    pub(super) fn decades(name: &str) -> Self {
        Self {
            base: 10.0,
            ..Self::logarithmic(name)
        }
    }

    /// Axis for values of [`nines`]: the last percent takes as much space as all others.
    pub(super) fn of_nines(name: &str) -> Self {
        Self {
            base: 10.0,
            label: |place| format!("{} %", percent(place)),
            ..Self::logarithmic(name)
        }
    }
}

/// Position of a percentage on an axis of nines: 0 at 1, 90 at 10, 99 at 100.
pub(super) fn nines(percent: f64) -> f64 {
    100.0 / (100.0 - percent)
}

/// Inverse of [`nines`].
fn percent(place: f64) -> f64 {
    let percent = 100.0 - 100.0 / place;
    (percent * 1e4).round() / 1e4
}

#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Style of the curves of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Lines between markers.
    Points,
    /// Lines without markers: outlines of a histogram.
    Outline,
}

#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
    pub(super) form: Form,
}

/// Number of a curve's colour, 0 to 7.
pub(super) fn color_of(curve: usize) -> usize {
    curve % COLORS.len()
}

/// Colours as they appear in drawings, for replacement by the style sheet's.
pub(super) fn color_names() -> impl Iterator<Item = String> {
    COLORS
        .into_iter()
        .map(|RGBColor(red, green, blue)| format!("#{red:02X}{green:02X}{blue:02X}"))
}

impl Plot {
    /// Draws the plot as SVG.
    pub(super) fn svg(&self) -> Result<String, String> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let bounds = |values: &mut dyn Iterator<Item = f64>, axis: &Axis| {
            let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            let low = if axis.logarithmic { low } else { 0.0 };
            (low, high * 1.05)
        };
        let (x0, x1) = bounds(&mut points().map(|point| point.0), &self.x);
        let (y0, y1) = bounds(&mut points().map(|point| point.1), &self.y);
        let base = self.x.base;
        match (self.x.logarithmic, self.y.logarithmic) {
            (true, true) => self.draw((x0..x1).log_scale().base(base), (y0..y1).log_scale()),
            (true, false) => self.draw((x0..x1).log_scale().base(base), y0..y1),
            (false, true) => self.draw(x0..x1, (y0..y1).log_scale()),
            (false, false) => self.draw(x0..x1, y0..y1),
        }
    }

    fn draw<X, Y>(&self, x: X, y: Y) -> Result<String, String>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.title);
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .margin(8)
                .margin_right(18)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d(x, y)
                .map_err(|error| failed(&error))?;
            chart
                .configure_mesh()
                .x_desc(&self.x.name)
                .y_desc(&self.y.name)
                .x_label_formatter(&|value| (self.x.label)(*value))
                .y_label_formatter(&|value| (self.y.label)(*value))
                .label_style(("sans-serif", 12))
                .axis_desc_style(("sans-serif", 13))
                .x_labels(9)
                .y_labels(8)
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.15))
                .draw()
                .map_err(|error| failed(&error))?;
            for (number, curve) in self.curves.iter().enumerate() {
                let color = COLORS[color_of(number)].to_rgba();
                let markers = match self.form {
                    Form::Points => 3,
                    Form::Outline => 0,
                };
                chart
                    .draw_series(
                        LineSeries::new(curve.points.iter().copied(), color.stroke_width(2))
                            .point_size(markers),
                    )
                    .map_err(|error| failed(&error))?;
            }
            root.present().map_err(|error| failed(&error))?;
        }
        Ok(svg)
    }
}

/// Formats a number briefly: 512, 4k, 1M.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1_048_576.0 && value % 1_048_576.0 == 0.0 => (value / 1_048_576.0, "Mi"),
        value if value >= 1024.0 && value % 1024.0 == 0.0 => (value / 1024.0, "Ki"),
        value => (value, ""),
    };
    if value.fract() == 0.0 {
        format!("{value:.0}{unit}")
    } else {
        format!("{value:.1}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_has_its_axes_and_colours_and_no_background() {
        let plot = Plot {
            title: "throughput".to_owned(),
            x: Axis::logarithmic("transactions"),
            y: Axis::linear("k I/Os a second"),
            curves: vec![Curve {
                name: "rust read".to_owned(),
                points: vec![(1.0, 80.0), (64.0, 500.0)],
            }],
            form: Form::Points,
        };
        let svg = plot.svg().expect("a plot");
        let color = color_names().next().expect("a colour");
        for text in ["<svg", "viewBox", "transactions", "k I/Os a second", &color] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("#FFFFFF"), "{svg}");
    }

    #[test]
    fn nines_axis_shows_percentages() {
        for (place, expected) in [(1.0, 0.0), (10.0, 90.0), (100.0, 99.0), (1e4, 99.99)] {
            assert_eq!(percent(place), expected);
            assert!((nines(expected) / place - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(short(4096.0), "4Ki");
        assert_eq!(short(1_048_576.0), "1Mi");
        assert_eq!(short(0.5), "0.5");
    }
}
