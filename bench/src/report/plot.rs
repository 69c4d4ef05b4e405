//! Curves in a coordinate system, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (720, 420);
/// Colours of the curves: distinguishable for most readers, and dark enough for a white page.
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

    /// For values of [`nines`]: the last percent takes as much space as all before it.
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

/// The percentage at such a place.
fn percent(place: f64) -> f64 {
    let percent = 100.0 - 100.0 / place;
    (percent * 1e4).round() / 1e4
}

/// Points that belong together.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
}

impl Plot {
    /// Draws it.
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
            root.fill(&WHITE).map_err(|error| failed(&error))?;
            let mut chart = ChartBuilder::on(&root)
                .caption(&self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(42)
                .y_label_area_size(64)
                .build_cartesian_2d(x, y)
                .map_err(|error| failed(&error))?;
            chart
                .configure_mesh()
                .x_desc(&self.x.name)
                .y_desc(&self.y.name)
                .x_label_formatter(&|value| (self.x.label)(*value))
                .y_label_formatter(&|value| (self.y.label)(*value))
                .light_line_style(WHITE)
                .draw()
                .map_err(|error| failed(&error))?;
            for (number, curve) in self.curves.iter().enumerate() {
                let color = COLORS[number % COLORS.len()].to_rgba();
                chart
                    .draw_series(
                        LineSeries::new(curve.points.iter().copied(), color.stroke_width(2))
                            .point_size(3),
                    )
                    .map_err(|error| failed(&error))?
                    .label(&curve.name)
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                    });
            }
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .position(SeriesLabelPosition::UpperLeft)
                .draw()
                .map_err(|error| failed(&error))?;
            root.present().map_err(|error| failed(&error))?;
        }
        Ok(svg)
    }
}

/// A number in few characters: 512, 4k, 1M.
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
    fn a_plot_holds_its_title_its_curves_and_its_axes() {
        let plot = Plot {
            title: "throughput".to_owned(),
            x: Axis::logarithmic("transactions"),
            y: Axis::linear("k I/Os a second"),
            curves: vec![Curve {
                name: "rust read".to_owned(),
                points: vec![(1.0, 80.0), (64.0, 500.0)],
            }],
        };
        let svg = plot.svg().expect("a plot");
        for text in [
            "<svg",
            "throughput",
            "transactions",
            "k I/Os a second",
            "rust read",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
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
