//! An SVG drawing, element by element: for the figures of the benchmark and the picture of a fault
//! run.

use std::fmt::{self, Write as _};

/// A drawing, or a part of one. Coordinates are pixels; `style` is a list of SVG attributes.
#[derive(Debug, Clone, Default)]
pub struct Svg(String);

impl Svg {
    /// A rectangle: left, top, width and height.
    pub fn rect(&mut self, [x, y, width, height]: [f64; 4], style: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" {style}/>"#
        ));
    }

    /// A line from one point to another.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], style: &str) {
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#
        ));
    }

    /// A line through `points`.
    pub fn polyline(&mut self, points: &[(f64, f64)], style: &str) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points: Vec<String> = points.collect();
        let points = points.join(" ");
        self.add(format_args!(
            r#"<polyline points="{points}" fill="none" {style}/>"#
        ));
    }

    /// A circle: its centre and its radius.
    pub fn circle(&mut self, [x, y, radius]: [f64; 3], style: &str) {
        self.add(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" {style}/>"#
        ));
    }

    /// `text`, escaped.
    pub fn text(&mut self, [x, y]: [f64; 2], style: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" {style}>{text}</text>"#
        ));
    }

    /// What `draw` adds, with a title that a browser shows under the pointer.
    pub fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.add(format_args!("<g><title>{}</title>", escape(title)));
        draw(self);
        self.add(format_args!("</g>"));
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}

impl fmt::Display for Svg {
    /// The elements, without the `svg` around them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `text`, escaped for SVG or HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_titles_are_escaped() {
        let mut svg = Svg::default();
        svg.titled("a < b", |svg| svg.text([1.0, 2.0], "", "c & </text>"));
        let expected = "<g><title>a &lt; b</title>\n\
                        <text x=\"1.0\" y=\"2.0\" >c &amp; &lt;/text&gt;</text>\n</g>\n";
        assert_eq!(svg.to_string(), expected);
    }
}
