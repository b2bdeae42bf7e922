//! Who takes part, and how each looks in every figure of the page.

use std::fmt::Write as _;

use super::plot::Look;
use crate::{
    results::Results,
    svg::{Shape, Svg, escape},
};

/// Colours for ours and for references; the style has as many of each.
const COLOURS: usize = 8;
const GREYS: usize = 6;
/// What contenders that are references begin with.
const REFERENCES: [&str; 4] = ["quic", "mpquic", "fcfs", "sctp"];
/// Colours the usual contenders have in every report, if they take part.
const USUAL: [(&str, usize); 4] = [("ads", 0), ("admission", 1), ("nine-tails", 2), ("edf", 3)];

/// What a legend shows of a contender.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sample {
    Line,
    Bar,
}

impl Sample {
    fn id(self, n: usize) -> String {
        match self {
            Self::Line => format!("line-{n}"),
            Self::Bar => format!("bar-{n}"),
        }
    }
}

/// The contenders in order.
#[derive(Debug)]
pub(super) struct Cast {
    members: Vec<(String, Look)>,
}

/// Whether a contender is there to be compared with.
fn is_reference(name: &str) -> bool {
    REFERENCES.iter().any(|reference| name.starts_with(reference))
}

impl Cast {
    /// All of some results: in their order, and then any that only have cells.
    pub(super) fn of(results: &Results) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let of_cells = results.cells.iter().map(|cell| &cell.contender);
        for name in results.contenders.iter().chain(of_cells) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let usual = |name: &str| USUAL.iter().find(|usual| usual.0 == name).map(|usual| usual.1);
        let taken: Vec<usize> = names.iter().filter_map(|name| usual(name)).collect();
        // Free colours first, then all again with the next marker.
        let mut free = (0..COLOURS).filter(|colour| !taken.contains(colour)).chain((0..).map(|n| n % COLOURS));
        let mut greys = 0;
        let members = names.iter().enumerate().map(|(n, &name)| {
            let look = if is_reference(name) {
                greys += 1;
                let shape = Shape::ALL[(greys - 1 + 4) % Shape::ALL.len()];
                Look { class: format!("s{n} g{} theirs", (greys - 1) % GREYS), shape, ours: false }
            } else {
                let colour = usual(name).or_else(|| free.next()).unwrap_or(0);
                let shape = Shape::ALL[n % Shape::ALL.len()];
                Look { class: format!("s{n} c{colour} ours"), shape, ours: true }
            };
            (name.to_owned(), look)
        });
        Self { members: members.collect() }
    }

    /// Every contender.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Look)> {
        self.members.iter().map(|(name, look)| (name.as_str(), look))
    }

    /// How many take part.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The name with its marker, as a table shows it.
    pub(super) fn swatch(&self, name: &str) -> String {
        let n = self.members.iter().position(|member| member.0 == name);
        n.map_or_else(
            || escape(name),
            |n| format!("<span class=\"who {}\">{}</span>", self.weight(n), self.named(n, Sample::Line)),
        )
    }

    /// The legend of a figure: pressing a name hides or shows the contender in all figures.
    pub(super) fn legend(&self, names: &[&str], sample: Sample, bound: bool) -> String {
        let mut html = String::from("<p class=\"legend\">");
        for n in (0..self.len()).filter(|&n| names.contains(&self.members[n].0.as_str())) {
            let (weight, named) = (self.weight(n), self.named(n, sample));
            let _ = write!(html, "<label for=\"show-{n}\" class=\"l{n} who {weight}\">{named}</label>");
        }
        if bound {
            html.push_str(
                "<span class=\"who\"><svg class=\"sample\" viewBox=\"0 0 26 12\" aria-hidden=\"true\">\
                 <path class=\"bound\" d=\"M0 6H26\"/></svg>bound</span>",
            );
        }
        html + "</p>\n"
    }

    fn named(&self, n: usize, sample: Sample) -> String {
        let id = sample.id(n);
        let name = escape(&self.members[n].0);
        format!("<svg class=\"sample\" viewBox=\"0 0 26 12\" aria-hidden=\"true\"><use href=\"#{id}\"/></svg>{name}")
    }

    fn weight(&self, n: usize) -> &'static str {
        if self.members[n].1.ours { "ours" } else { "theirs" }
    }

    /// Pieces of everyone's line and bar, for legends and tables to refer to.
    pub(super) fn samples(&self) -> String {
        let mut html = String::from("<svg class=\"samples\" aria-hidden=\"true\">\n");
        for (n, (_, look)) in self.all().enumerate() {
            let mut piece = Svg::new(26.0, 12.0, "");
            piece.curve("line", [(0.0, 6.0), (26.0, 6.0)], "");
            piece.marker(look.shape, (13.0, 6.0), 3.4, "");
            let _ = writeln!(html, "<g id=\"{}\" class=\"{}\">{}</g>", Sample::Line.id(n), look.class, piece.marks());
            let mut piece = Svg::new(26.0, 12.0, "");
            piece.rect("bar", (7.0, 0.0), (12.0, 12.0), "");
            let _ = writeln!(html, "<g id=\"{}\" class=\"{}\">{}</g>", Sample::Bar.id(n), look.class, piece.marks());
        }
        html + "</svg>\n"
    }

    /// The boxes the legends' names switch. They come before everything they act on, and only keyboards see them.
    pub(super) fn switches(&self) -> String {
        let mut html = String::from("<div class=\"switches\">");
        for (n, (name, _)) in self.all().enumerate() {
            let name = escape(name);
            let _ = write!(html, "<input type=\"checkbox\" id=\"show-{n}\" checked aria-label=\"show {name}\">");
        }
        html + "</div>\n"
    }

    /// What the switches and a pointer on a legend do.
    pub(super) fn style(&self) -> String {
        let mut css = String::new();
        for n in 0..self.len() {
            let _ = writeln!(
                css,
                ":root:has(#show-{n}:not(:checked)) .panels .s{n} {{ display: none; }} \
                 :root:has(#show-{n}:not(:checked)) .l{n} {{ opacity: .4; text-decoration: line-through; }} \
                 :root:has(.l{n}:hover) .panels .s:not(.s{n}) {{ opacity: .13; }} \
                 :root:has(#show-{n}:focus-visible) .l{n} {{ outline: 2px solid; outline-offset: 2px; }}"
            );
        }
        css
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(names: &[&str]) -> Cast {
        let contenders = names.iter().map(|&name| name.to_owned()).collect();
        Cast::of(&Results { contenders, ..Results::default() })
    }

    #[test]
    fn references_are_grey_and_the_usual_keep_their_colours() {
        let cast = cast(&["dtp-d", "admission", "ads", "quic"]);
        let class = |name| cast.all().find(|member| member.0 == name).map_or("", |member| &member.1.class);
        assert_eq!([class("dtp-d"), class("admission"), class("ads")], ["s0 c2 ours", "s1 c1 ours", "s2 c0 ours"]);
        assert_eq!(class("quic"), "s3 g0 theirs");
    }

    #[test]
    fn there_are_looks_for_any_number() {
        let names: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
        let cast = cast(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(cast.len(), 40);
        let mut looks: Vec<_> = cast.all().map(|(_, look)| (look.class.clone(), look.shape)).collect();
        looks.dedup();
        assert_eq!(looks.len(), 40);
    }
}
