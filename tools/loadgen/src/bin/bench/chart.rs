//! Pure: charts as SVG, readable on light and on dark ground.

#![expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "drawn, to a tenth of a point")]

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 44.0;
/// Lines across, beside the one at zero.
const GRID: u32 = 4;
const STYLE: &str = "<style>\
svg{font:12px system-ui,sans-serif;--ink:#1f2328;--soft:#8c959f;--a:#0969da;--b:#bc4c00;--c:#1a7f37;--d:#8250df}\
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--soft:#6e7681;--a:#58a6ff;--b:#ffa657;--c:#56d364;--d:#d2a8ff}}\
text{fill:var(--ink)}.g{stroke:var(--soft);stroke-width:.5}.t{font-size:15px;font-weight:600}\
.s0{stroke:var(--a)}.s1{stroke:var(--b)}.s2{stroke:var(--c)}.s3{stroke:var(--d)}\
rect.s0{fill:var(--a)}rect.s1{fill:var(--b)}rect.s2{fill:var(--c)}rect.s3{fill:var(--d)}\
polyline{fill:none;stroke-width:2}</style>";

/// One line of a chart.
pub struct Series {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common ground. Values above `most` are drawn at it, so that one outlier does not flatten the rest.
pub fn lines(title: &str, x_label: &str, y_label: &str, series: &[Series], most: Option<f64>) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let x_max = all().map(|(x, _)| *x).fold(1.0, f64::max);
    let y_seen = all().map(|(_, y)| *y).fold(1e-9, f64::max);
    let y_max = most.map_or(y_seen, |most| y_seen.min(most));
    let mut svg = ground(title, x_label, y_label, y_max);
    for step in 0..=GRID {
        let x = x_max * f64::from(step) / f64::from(GRID);
        let at = LEFT + (WIDTH - LEFT - RIGHT) * x / x_max;
        let _ = write!(
            svg,
            r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            HEIGHT - BOTTOM + 16.0,
            short(x)
        );
    }
    for (number, Series { name, points }) in series.iter().enumerate() {
        let class = number % 4;
        let _ = write!(svg, r#"<polyline class="s{class}" points=""#);
        for (x, y) in points {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * x / x_max;
            let _ = write!(svg, "{x:.1},{:.1} ", height_of(*y, y_max));
        }
        let at = LEFT + 150.0 * number as f64;
        let _ = write!(
            svg,
            r#""/><rect class="s{class}" x="{at:.1}" y="34" width="10" height="10"/><text x="{:.1}" y="43">{}</text>"#,
            at + 15.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

/// A bar for each name.
pub fn bars(title: &str, y_label: &str, bars: &[(String, f64)]) -> String {
    let y_max = bars.iter().map(|(_, value)| *value).fold(1e-9, f64::max);
    let mut svg = ground(title, "", y_label, y_max);
    let room = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (number, (name, value)) in bars.iter().enumerate() {
        let (x, top) = (LEFT + room * (number as f64 + 0.15), height_of(*value, y_max));
        let middle = x + room * 0.35;
        let _ = write!(
            svg,
            r#"<rect class="s0" x="{x:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"/><text x="{middle:.1}" y="{:.1}" text-anchor="middle">{}</text><text x="{middle:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            room * 0.7,
            HEIGHT - BOTTOM - top,
            top - 5.0,
            short(*value),
            HEIGHT - BOTTOM + 16.0,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

fn ground(title: &str, x_label: &str, y_label: &str, y_max: f64) -> String {
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{STYLE}<text class="t" x="{LEFT}" y="22">{title}</text>"#,
        title = escaped(title)
    );
    for step in 0..=GRID {
        let value = y_max * f64::from(step) / f64::from(GRID);
        let y = height_of(value, y_max);
        let _ = write!(
            svg,
            r#"<line class="g" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(value)
        );
    }
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text><text transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        escaped(x_label),
        escaped(y_label)
    );
    svg
}

fn height_of(value: f64, y_max: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / y_max).min(1.0)
}

/// As few digits as tell.
fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_on_its_ground_and_an_outlier_does_not_flatten_the_rest() {
        let series = [Series { name: "p99", points: vec![(0.0, 0.0), (10.0, 50.0), (20.0, 9_000.0)] }];
        let svg = lines("latency", "orders/s", "ms", &series, Some(100.0));
        assert!(svg.contains("64.0,276.0 384.0,166.0 704.0,56.0 "), "{svg}");
        assert!(svg.contains(">100</text>") && svg.contains("p99") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn a_bar_says_its_value_and_what_stands_in_a_name_is_text() {
        let svg = bars("CPU", "ms", &[("a<b".to_owned(), 0.25), ("c".to_owned(), 0.5)]);
        assert!(
            svg.contains("a&lt;b") && svg.contains(">0.25</text>") && svg.contains(">0.50</text>"),
            "{svg}"
        );
        assert!(bars("none", "", &[]).ends_with("</svg>\n"));
        assert_eq!([short(0.0), short(1.25), short(12.5)], ["0", "1.2", "12"]);
    }
}
