//! Pictures of the figures: bars for those who are compared, lines for what grows.

use std::fmt::Write as _;

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

/// One bar for every contender, in the first column; a whisker from the lowest to the highest round.
fn bars(sheet: &Sheet) -> (String, f64) {
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
    let mut body = String::new();
    let mut y = 40.0;
    for (row, cell) in cells() {
        let ours = row.who.starts_with("ringfence");
        let (colour, middle) = (COLOURS[usize::from(!ours)], y + BAR / 2.0);
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
             <path d=\"M{:.1} {middle}H{:.1}\" stroke=\"black\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8.0,
            middle + 4.0,
            escape(&row.who),
            cell.median * scale,
            LEFT + cell.low * scale,
            LEFT + cell.high * scale,
            LEFT + cell.high * scale + 8.0,
            middle + 4.0,
            short(cell.median),
        );
        y += BAR + 8.0;
    }
    let unit = sheet.columns.first().map_or("", String::as_str);
    let _ = writeln!(
        body,
        "<text x=\"{LEFT}\" y=\"{}\">{}</text>",
        y + 12.0,
        escape(unit)
    );
    (body, y + 30.0)
}

/// A line for every row, over the columns.
fn lines(sheet: &Sheet) -> (String, f64) {
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
    let mut body = format!(
        "<path d=\"M70 {TOP}V{0}H{1}\" fill=\"none\" stroke=\"black\"/>\
         <text x=\"62\" y=\"{2}\" text-anchor=\"end\">{3}</text>\
         <text x=\"62\" y=\"{0}\" text-anchor=\"end\">0</text>\n",
        TOP + HEIGHT,
        WIDTH - 150.0,
        TOP + 8.0,
        short(most),
    );
    for (column, name) in sheet.columns.iter().enumerate() {
        let (x, y) = (x(column), TOP + HEIGHT + 18.0);
        let _ = writeln!(
            body,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
            escape(name)
        );
    }
    for (number, row) in sheet.rows.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = medians(row).into_iter().enumerate();
        let points: Vec<(f64, f64)> = points
            .filter_map(|(column, value)| Some((x(column), y(value?))))
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let Some((last_x, last_y)) = points.last() else {
            continue;
        };
        let _ = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            last_x + 8.0,
            last_y + 4.0,
            escape(&row.who),
        );
    }
    (body, TOP + HEIGHT + 40.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::Cell;

    #[test]
    fn a_picture_shows_every_contender_and_hides_no_sign() {
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
