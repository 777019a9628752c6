//! Writes a picture as SVG: one file without scripts, with every text escaped.

use super::picture::{Fill, Picture};
use std::fmt::Write;

/// Writes the picture.
pub(super) fn write(picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n<style>\n",
        escaped(&picture.title)
    );
    for fill in Fill::ALL {
        let _ = writeln!(svg, ".{} {{ fill: {}; }}", fill.class(), fill.colour());
    }
    svg.push_str(".block { stroke: #333; stroke-width: 0.3; }\n.axis { stroke: #999; stroke-width: 1; }\n</style>\n");
    let _ = writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>");
    for shape in &picture.shapes {
        let _ = writeln!(
            svg,
            "<rect class=\"block {}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\"><title>{}</title></rect>",
            shape.fill.class(),
            shape.x,
            shape.y,
            shape.width,
            shape.height,
            escaped(&shape.tip)
        );
    }
    for [x1, y1, x2, y2] in &picture.lines {
        let _ = writeln!(svg, "<line class=\"axis\" x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\"/>");
    }
    for label in &picture.labels {
        let _ = writeln!(svg, "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>", label.x, label.y, escaped(&label.text));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Escapes text for XML. Characters that XML does not allow become replacement characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::picture::{Label, Shape};
    use super::*;

    #[test]
    fn text_is_escaped_wherever_it_stands() {
        let evil = "</title><script>alert('x')</script>&\"\u{1}\u{ffff}";
        let tip = evil.to_owned();
        let picture = Picture {
            title: evil.to_owned(),
            width: 10,
            height: 20,
            shapes: vec![Shape { fill: Fill::Free, x: 1.0, y: 2.0, width: 3.0, height: 4.0, tip }],
            lines: vec![[0.0, 1.0, 2.0, 3.0]],
            labels: vec![Label { x: 0.0, y: 0.0, text: evil.to_owned() }],
        };
        let svg = write(&picture);
        assert!(!svg.contains("<script") && !svg.contains('\u{1}') && !svg.contains('\u{ffff}'), "{svg}");
        let safe = "&lt;/title&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}\u{fffd}";
        assert_eq!(svg.matches(safe).count(), 3, "{svg}");
        assert!(
            svg.contains("<rect class=\"block free\" x=\"1.00\" y=\"2.00\" width=\"3.00\" height=\"4.00\"><title>")
        );
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    }
}
