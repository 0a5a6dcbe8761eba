//! Pure: line charts as SVG.

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

/// Line chart on white, readable on a dark page too. Values above `limit` are drawn at it, so that outliers do not flatten
/// the rest.
pub fn lines(
    title: &str,
    labels: (&str, &str),
    series: &[Series],
    limit: Option<f64>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw(&root, title, labels, series, limit).map_err(|error| anyhow!("a chart cannot be drawn: {error}"))?;
    drop(root);
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawingResult = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

fn draw(
    root: &Area<'_>,
    title: &str,
    (x_label, y_label): (&str, &str),
    series: &[Series],
    limit: Option<f64>,
) -> DrawingResult {
    let all = || series.iter().flat_map(|series| &series.points);
    let x_max = all().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_max = all().map(|(_, y)| y.min(limit.unwrap_or(f64::MAX))).fold(1e-9, f64::max);
    root.fill(&WHITE)?;
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
    root.present()
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
        assert_eq!([short(0.0), short(1.25), short(12.5)], ["0", "1.2", "12"]);
    }
}
