//! Pictures of the figures: bars for a comparison, lines for growth.

use ringfence_testkit::svg::{Svg, escape};

use crate::sheet::{Row, Sheet, short};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const BAR: f64 = 22.0;
const COLOURS: [&str; 6] = [
    "#1b6ca8", "#d1495b", "#3c896d", "#edae49", "#775588", "#666666",
];

/// The figure as an SVG document.
pub(crate) fn svg(sheet: &Sheet) -> String {
    let (body, height) = if sheet.grows {
        lines(sheet)
    } else {
        bars(sheet)
    };
    let title = escape(&sheet.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-weight=\"bold\">{title}</text>\n{body}</svg>\n"
    )
}

/// One bar per contender for the first column, with a line from the lowest to the highest round.
fn bars(sheet: &Sheet) -> (Svg, f64) {
    let cells = || {
        sheet
            .rows
            .iter()
            .filter_map(|row| Some((row, (*row.cells.first()?)?)))
    };
    let most = cells()
        .map(|(_, cell)| cell.high)
        .fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - 110.0) / most;
    let mut body = Svg::default();
    let mut y = 40.0;
    for (row, cell) in cells() {
        let ours = row.who.starts_with("ringfence");
        let (colour, middle) = (COLOURS[usize::from(!ours)], y + BAR / 2.0);
        let (low, high) = (LEFT + cell.low * scale, LEFT + cell.high * scale);
        body.text([LEFT - 8.0, middle + 4.0], r#"text-anchor="end""#, &row.who);
        body.rect(
            [LEFT, y, cell.median * scale, BAR],
            &format!(r#"fill="{colour}""#),
        );
        body.line([low, middle, high, middle], r#"stroke="black""#);
        body.text([high + 8.0, middle + 4.0], "", &short(cell.median));
        y += BAR + 8.0;
    }
    let unit = sheet.columns.first().map_or("", String::as_str);
    body.text([LEFT, y + 12.0], "", unit);
    (body, y + 30.0)
}

/// A line for every row, over the columns.
fn lines(sheet: &Sheet) -> (Svg, f64) {
    const TOP: f64 = 40.0;
    const HEIGHT: f64 = 260.0;
    let medians = |row: &Row| {
        row.cells
            .iter()
            .map(|cell| cell.map(|cell| cell.median))
            .collect::<Vec<_>>()
    };
    let all = sheet.rows.iter().flat_map(medians).flatten();
    let most = all.fold(f64::MIN_POSITIVE, f64::max);
    let step = (WIDTH - 220.0) / (sheet.columns.len().max(2) - 1) as f64;
    let x = |column: usize| 70.0 + column as f64 * step;
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / most);
    let (bottom, mut body) = (TOP + HEIGHT, Svg::default());
    let axes = [(70.0, TOP), (70.0, bottom), (WIDTH - 150.0, bottom)];
    body.polyline(&axes, r#"stroke="black""#);
    body.text([62.0, TOP + 8.0], r#"text-anchor="end""#, &short(most));
    body.text([62.0, bottom], r#"text-anchor="end""#, "0");
    for (column, name) in sheet.columns.iter().enumerate() {
        body.text([x(column), bottom + 18.0], r#"text-anchor="middle""#, name);
    }
    for (number, row) in sheet.rows.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = medians(row).into_iter().enumerate();
        let points: Vec<(f64, f64)> = points
            .filter_map(|(column, value)| Some((x(column), y(value?))))
            .collect();
        let Some((last_x, last_y)) = points.last() else {
            continue;
        };
        body.polyline(&points, &format!(r#"stroke="{colour}" stroke-width="2""#));
        let at = [last_x + 8.0, last_y + 4.0];
        body.text(at, &format!(r#"fill="{colour}""#), &row.who);
    }
    (body, TOP + HEIGHT + 40.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::Cell;

    #[test]
    fn a_picture_shows_every_contender_and_is_escaped() {
        let mut sheet = Sheet::new("x", "a < b", &["per second", "p99"]);
        sheet.row("ringfence", vec![Cell::of([2.0, 3.0]), None]);
        sheet.row("rslock", vec![Cell::of([1.0]), Cell::of([4.0])]);
        for grows in [false, true] {
            sheet.grows = grows;
            let picture = svg(&sheet);
            assert!(picture.contains("a &lt; b"), "{picture}");
            assert!(
                picture.contains(">ringfence<") && picture.contains(">rslock<"),
                "{picture}"
            );
        }
    }
}
