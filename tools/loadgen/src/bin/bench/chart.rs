//! Pure: line charts and bar charts as SVG.

#![expect(clippy::float_arithmetic, reason = "drawn")]

use anyhow::anyhow;
use plotters::prelude::*;

const SIZE: (u32, u32) = (720, 320);
const FONT: &str = "sans-serif";
const TITLE: (&str, u32) = (FONT, 16);
const LABEL: (&str, u32) = (FONT, 12);
const COLORS: [RGBColor; 4] =
    [RGBColor(9, 105, 218), RGBColor(188, 76, 0), RGBColor(26, 127, 55), RGBColor(130, 80, 223)];

/// Line of a chart.
pub struct Series {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Line chart. Values above `limit` are drawn at it, so that outliers do not flatten the rest.
pub fn lines(
    title: &str,
    (x_label, y_label): (&str, &str),
    series: &[Series],
    limit: Option<f64>,
) -> anyhow::Result<String> {
    let all = || series.iter().flat_map(|series| &series.points);
    let x_max = all().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_max = all().map(|(_, y)| y.min(limit.unwrap_or(f64::MAX))).fold(1e-9, f64::max);
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(0)
            .y_labels(6)
            .x_desc(x_label)
            .y_desc(y_label)
            .label_style(LABEL)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        for (Series { name, points }, color) in series.iter().zip(COLORS.into_iter().cycle()) {
            let points = points.iter().map(|(x, y)| (*x, y.min(y_max)));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(LABEL)
            .draw()?;
        Ok(())
    })
}

/// Bar chart with a bar for each name.
pub fn bars(title: &str, y_label: &str, bars: &[(String, f64)]) -> anyhow::Result<String> {
    let y_max = bars.iter().map(|(_, value)| *value).fold(1e-9, f64::max) * 1.1;
    draw(|root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(12)
            .x_label_area_size(24)
            .y_label_area_size(52)
            .build_cartesian_2d((0..bars.len()).into_segmented(), 0.0..y_max)?;
        let name = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(at) => bars.get(*at).map_or_else(String::new, |(name, _)| name.clone()),
            SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_max_light_lines(0)
            .y_labels(6)
            .y_desc(y_label)
            .label_style(LABEL)
            .x_labels(bars.len() + 1)
            .x_label_formatter(&name)
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        let bar = |(at, (_, value)): (usize, &(String, f64))| {
            let ends = [(SegmentValue::Exact(at), 0.0), (SegmentValue::Exact(at + 1), *value)];
            let mut bar = Rectangle::new(ends, COLORS[0].filled());
            bar.set_margin(0, 0, 12, 12);
            bar
        };
        chart.draw_series(bars.iter().enumerate().map(bar))?;
        let value = |(at, (_, value)): (usize, &(String, f64))| {
            Text::new(short(*value), (SegmentValue::CenterOf(at), *value + y_max * 0.05), LABEL)
        };
        chart.draw_series(bars.iter().enumerate().map(value))?;
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawingResult = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// SVG with a white background, readable on a dark page too.
fn draw(content: impl FnOnce(&Area<'_>) -> DrawingResult) -> anyhow::Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = root.fill(&WHITE).and_then(|()| content(&root)).and_then(|()| root.present());
    drawn.map_err(|error| anyhow!("a chart cannot be drawn: {error}"))?;
    drop(root);
    Ok(svg)
}

/// Number with as few digits as needed.
fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_chart_ends_at_its_limit_and_names_its_series() {
        let series = [Series { name: "p99", points: vec![(0.0, 0.0), (10.0, 50.0), (20.0, 9_000.0)] }];
        let svg = lines("latency", ("orders/s", "ms"), &series, Some(100.0)).expect("a chart");
        assert!(svg.contains("p99") && svg.contains("orders/s") && svg.contains("polyline"), "{svg}");
        assert!(svg.contains(">\n100\n<") && !svg.contains("9000"), "{svg}");
    }

    #[test]
    fn bar_chart_shows_names_and_values_and_escapes_them() {
        let svg = bars("CPU", "ms", &[("a<b".to_owned(), 0.25), ("c".to_owned(), 0.5)]).expect("a chart");
        assert!(svg.contains("a&lt;b") && svg.contains("0.25") && svg.contains("0.50"), "{svg}");
        assert!(bars("none", "", &[]).is_ok());
        assert_eq!([short(0.0), short(1.25), short(12.5)], ["0", "1.2", "12"]);
    }
}
