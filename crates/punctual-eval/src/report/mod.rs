//! An experiment's results as one HTML page that needs nothing else: no scripts, no network, light and dark, on paper as well.

mod cast;
mod figure;
mod gauntlet;
mod headline;
pub mod markdown;
mod plot;
mod select;
mod table;
mod words;

use std::collections::BTreeSet;

use cast::Cast;
use figure::Scene;
pub use gauntlet::page as gauntlet;
use words::measure;

use crate::{
    results::{Figure, Results},
    svg::escape,
};

/// The page: the result in a sentence, the first figure, the thresholds, the other figures, all results as tables, the set-up and the command. The same
/// results give the same page.
pub fn page(results: &Results) -> String {
    let cast = Cast::of(results);
    let scene = Scene { results, cast: &cast };
    let figures = if results.figures.is_empty() { default_figures(results) } else { results.figures.clone() };
    let mut drawn = figures.iter().zip(1..).map(|(figure, n)| scene.figure(figure, n));
    let first = drawn.next().unwrap_or_default();
    let drawn: String = drawn.collect();
    let body = format!(
        "<p class=\"eyebrow\"><b>{name}</b> {title}</p>\n<h1>{headline}</h1>\n{lead}{first}{verdicts}{drawn}\
         <section><h2>All results</h2>\n{tables}</section>\n\
         <section><h2>What the words mean</h2>\n{definitions}</section>\n\
         {setup}",
        name = escape(&results.name),
        title = escape(&results.title),
        headline = headline(results, &cast),
        lead = lead(results, &cast),
        verdicts = headline::failures(&results.failures)
            + &headline::ended(&results.ended())
            + &headline::verdicts(&results.verdicts),
        tables = table::results(&scene),
        definitions = definitions(results, &figures),
        setup = setup(&results.command, &results.setup),
    );
    document(&results.name, &cast, &body)
}

/// A page with the style, and what legends and switches refer to.
fn document(title: &str, cast: &Cast, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{style}{cast_style}</style>\n</head>\n<body>\n{switches}{samples}{body}\
         </body>\n</html>\n",
        title = escape(title),
        style = include_str!("style.css"),
        cast_style = cast.style(),
        switches = cast.switches(),
        samples = cast.samples(),
    )
}

/// The result, a line for each contender.
fn headline(results: &Results, cast: &Cast) -> String {
    let clauses: Vec<String> = headline::clauses(results, cast).iter().map(|clause| escape(clause)).collect();
    format!("<span>{}</span>", clauses.join(";</span> <span>"))
}

/// What an experiment that asks for no figures shows.
fn default_figures(results: &Results) -> Vec<Figure> {
    if results.cells.is_empty() {
        return Vec::new();
    }
    vec![Figure { title: "Blocks on time".into(), measure: "on_time".into(), ..Figure::default() }]
}

fn lead(results: &Results, cast: &Cast) -> String {
    let paragraph = |class: &str, text: &str| match text.trim() {
        "" => String::new(),
        text => format!("<p class=\"{class}\">{}</p>\n", code(&escape(text))),
    };
    let source = if results.source.is_empty() { String::new() } else { format!("Source: {}.", results.source) };
    let worst = headline::worst(results, cast).unwrap_or_default();
    paragraph("lead", &results.about) + &paragraph("note", format!("{worst} {source}").trim())
}

/// What stands between backticks as code.
fn code(text: &str) -> String {
    let mut parts: Vec<&str> = text.split('`').collect();
    // One without a partner is only a backtick.
    let alone = if parts.len().is_multiple_of(2) { parts.pop() } else { None };
    let mut html = String::new();
    for (n, part) in parts.into_iter().enumerate() {
        html.push_str(&if n % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() });
    }
    alone.map_or(html.clone(), |rest| format!("{html}`{rest}"))
}

/// The measures the page shows, and the bound if it is drawn.
fn definitions(results: &Results, figures: &[Figure]) -> String {
    let mut keys: Vec<&str> = table::columns(results).iter().map(|of| of.key).collect();
    keys.extend(figures.iter().map(|figure| figure.measure.split(':').next().unwrap_or_default()));
    let mut seen = BTreeSet::new();
    let known = keys.into_iter().filter(|key| seen.insert(*key)).map(measure).filter(|of| !of.meaning.is_empty());
    let list: String =
        known.map(|of| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&of.title), escape(&of.meaning))).collect();
    format!(
        "<dl>{list}<dt>±</dt><dd>Half the width of the 95 % confidence interval of the mean over the seeds (Student's t).</dd></dl>"
    )
}

fn setup(command: &str, text: &str) -> String {
    let mut html = String::new();
    if !command.is_empty() {
        html.push_str(&format!("<section><h2>Do it again</h2>\n<pre>{}</pre></section>\n", escape(command)));
    }
    if !text.is_empty() {
        html.push_str(&format!("<section><h2>The set-up</h2>\n<pre>{}</pre></section>\n", escape(text)));
    }
    html
}

#[cfg(test)]
mod tests;
