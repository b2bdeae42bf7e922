//! What the gauntlet found, as one page: what holds, how near the bound everyone came, who was better where, and the worst cells.

use std::fmt::Write as _;

use super::{
    cast::{Cast, Sample},
    document, headline,
    plot::{
        Size, YAxis,
        cloud::{Cloud, Mark, Set},
        scale::percent,
    },
    setup,
};
use crate::{
    gauntlet::{Behind, CellResults, Overall, Regret, Results, Role, Score, Standing, Summary},
    results::Results as Named,
    svg::escape,
};

/// Worst cells that the table has.
const WORST: usize = 20;

/// Regrets in points beyond which an axis need not go: who is that far behind is far behind.
const MOST_POINTS: f64 = 30.0;

/// The page. The same results give the same page.
pub fn page(results: &Results) -> String {
    // Nobody who has one path alone is drawn by himself.
    let drawn = results.contenders.iter().filter(|one| one.role != Role::OursAlone).map(|one| one.name.clone());
    let cast = Cast::of(&Named { contenders: drawn.collect(), ..Named::default() });
    let scene = Scene { results, cast: &cast };
    let easy = results.cells.iter().filter(|cell| cell.is_easy()).count();
    let mut body = format!(
        "<p class=\"eyebrow\"><b>gauntlet {}</b> networks and workloads drawn from their numbers</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">{} cells from number {}, {} of them easy; {} seeds each.{}</p>\n",
        results.gauntlet,
        scene.headline(),
        results.cells.len(),
        results.first,
        easy,
        results.seeds,
        scene.remarks(),
    );
    body.push_str(&headline::verdicts(&results.verdicts));
    let whole = Part { title: "of all blocks", of: |score| Some(&score.all), share: |run| Some(run.0) };
    let start =
        Part { title: "of the blocks of the first second", of: |score| score.start.as_ref(), share: |run| run.1 };
    body.push_str(&scene.distribution(&whole, 1));
    body.push_str(&scene.scatter(&whole, 2));
    body.push_str(&scene.regrets(&whole, 3));
    body.push_str(&scene.distribution(&start, 4));
    body.push_str(&scene.regrets(&start, 5));
    body.push_str(&scene.summaries());
    body.push_str(&scene.worst());
    body.push_str(&scene.failures());
    let ended: Vec<String> = results.cells.iter().flat_map(CellResults::ended).collect();
    body.push_str(&headline::ended(&ended));
    body.push_str(DEFINITIONS);
    body.push_str(&setup(&results.command, ""));
    document(&format!("gauntlet {}", results.gauntlet), &cast, &body)
}

const DEFINITIONS: &str = "<section><h2>What the words mean</h2>\n<dl>\
<dt>of the bound</dt><dd>Blocks on time, of those the clairvoyant bound has on time on average over the losses. A run may have luck and more.</dd>\n\
<dt>best baseline</dt><dd>In each cell, the plain QUIC with most blocks on time there, on several paths or on any one.</dd>\n\
<dt>best path alone</dt><dd>The same contender with the path on which it has most blocks on time, and no other.</dd>\n\
<dt>points behind</dt><dd>Blocks that the other has on time and this one has not, in hundredths of all, mean over the seeds. Negative: ahead.</dd>\n\
<dt>in doubt</dt><dd>Behind by more than 2 points, but not beyond the noise of seeds.</dd>\n\
<dt>easy</dt><dd>There is room for everything, time to send again what is lost, and queues that hold what has to wait.</dd>\n\
</dl></section>\n";

/// A part of the blocks, and how it is taken from scores and from runs (all blocks' share, and the first second's).
struct Part {
    title: &'static str,
    of: fn(&Score) -> Option<&Standing>,
    share: fn((f64, Option<f64>)) -> Option<f64>,
}

struct Scene<'a> {
    results: &'a Results,
    cast: &'a Cast,
}

impl Scene<'_> {
    fn headline(&self) -> String {
        let clause = |summary: &Summary| {
            let Behind { by_2, by_10, cells, .. } = summary.all.baseline;
            let behind =
                format!("behind the best baseline by more than 2 points in {by_2} of {cells} cells, by 10 in {by_10}");
            format!(
                "<span>{}: {} of the bound on average, {behind}</span>",
                escape(&summary.contender),
                percent(summary.all.shares.mean)
            )
        };
        self.results.summaries.iter().map(clause).collect::<Vec<_>>().join(" ")
    }

    /// What has to be known of some contenders.
    fn remarks(&self) -> String {
        let names = |such: &dyn Fn(&crate::gauntlet::Participant) -> bool| {
            let such = self.results.contenders.iter().filter(|one| such(one)).map(|one| escape(&one.name));
            such.collect::<Vec<_>>().join(", ")
        };
        let mut text = String::new();
        if !self.results.changes.is_empty() {
            let _ = write!(text, " Every cell was changed: <code>{}</code>.", escape(&self.results.changes.join(", ")));
        }
        let (wild, earlier) = (names(&|one| !one.repeats), names(&|one| one.earlier));
        if !wild.is_empty() {
            let _ = write!(text, " Runs of {wild} do not repeat: only their means mean anything.");
        }
        if !earlier.is_empty() {
            let _ = write!(text, " Runs of {earlier} are of an earlier time.");
        }
        text
    }

    /// Mean shares on time of someone in a cell: on all paths; of a baseline that has one alone, on the best.
    fn mean(&self, cell: &CellResults, name: &str, part: &Part) -> Option<f64> {
        let prefix = format!("{name}@");
        let mut best: Option<f64> = None;
        let mut runners: Vec<&str> = cell.runs.iter().map(|run| run.contender.as_str()).collect();
        runners.sort_unstable();
        runners.dedup();
        for runner in runners.into_iter().filter(|runner| *runner == name || runner.starts_with(&prefix)) {
            let runs = cell.runs.iter().filter(|run| run.contender == runner);
            let shares: Vec<f64> = runs.filter_map(|run| (part.share)((run.on_time, run.start))).collect();
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            if !shares.is_empty() && best.is_none_or(|best| mean > best) {
                best = Some(mean);
            }
        }
        best
    }

    /// The bound on average, of a cell that has such blocks.
    fn limit(cell: &CellResults, part: &Part) -> Option<f64> {
        let standing = cell.scores.iter().find_map(|score| (part.of)(score))?;
        (standing.average > 0.0).then_some(standing.average)
    }

    fn figure(
        &self,
        n: u32,
        title: &str,
        note: &str,
        names: &[&str],
        sample: Sample,
        panels: &[(&str, String)],
    ) -> String {
        let size = Size::among(panels.len()).class();
        let mut body = String::new();
        for (title, drawing) in panels {
            let _ = write!(body, "<div><h4>{title}</h4>{drawing}</div>");
        }
        format!(
            "<section class=\"figure\"><h2><span class=\"number\">Figure {n}</span> {title}</h2>\n<p class=\"note\">{note}</p>\n\
             {}<div class=\"panels {size}\">{body}</div></section>\n",
            self.cast.legend(names, sample, false)
        )
    }

    /// How many cells everyone is how near the bound in, all of them and easy ones.
    fn distribution(&self, part: &Part, n: u32) -> String {
        let draw = |easy: bool| {
            let sets = self.cast.all().filter_map(|(name, look)| {
                let cells = self.results.cells.iter().filter(|cell| !easy || cell.is_easy());
                let share =
                    |cell: &CellResults| Some((self.mean(cell, name, part)? / Self::limit(cell, part)?).min(1.0));
                let mut shares: Vec<f64> = cells.filter_map(share).collect();
                shares.sort_by(f64::total_cmp);
                let count = shares.len();
                let rise = shares.iter().enumerate().flat_map(|(below, share)| {
                    [below, below + 1]
                        .map(|rank| Mark { at: (*share, rank as f64 / count as f64), title: String::new() })
                });
                let points: Vec<Mark> = rise.collect();
                (!points.is_empty()).then(|| Set { name: name.to_owned(), look: look.clone(), points, joined: true })
            });
            let sets: Vec<Set> = sets.collect();
            let y =
                YAxis { title: "of the cells".into(), share: true, domain: (0.0, 1.0), log: false, infinite: false };
            let cloud = Cloud {
                size: Size::Half,
                label: "cells by what was reached of the bound",
                x_title: "at most so much of the bound",
                x: (0.0, 1.0),
                x_share: true,
                y,
                guide: &[],
                sets: &sets,
            };
            cloud.draw()
        };
        let names: Vec<&str> = self.cast.all().map(|(name, _)| name).collect();
        let note = "The lower a line, the better. Who had one path alone is drawn with the best of them in each cell.";
        let panels = [("all cells", draw(false)), ("easy cells", draw(true))];
        self.figure(n, &format!("How near the bound, {}", part.title), note, &names, Sample::Line, &panels)
    }

    /// Ours against the best baseline, a point a cell.
    fn scatter(&self, part: &Part, n: u32) -> String {
        let sets: Vec<Set> = self.each(
            |name, cell, standing| {
                let than = standing.baseline.as_ref()?;
                let best = standing.on_time + than.points / 100.0;
                let title = format!(
                    "cell {}: {name} {}, {} {}; {}",
                    cell.number,
                    percent(standing.on_time),
                    than.than,
                    percent(best),
                    cell.description
                );
                Some(Mark { at: (best, standing.on_time), title })
            },
            part,
            false,
        );
        let y = YAxis { title: "ours".into(), share: true, domain: (0.0, 1.0), log: false, infinite: false };
        let cloud = Cloud {
            size: Size::Wide,
            label: "ours against the best baseline",
            x_title: "the best baseline",
            x: (0.0, 1.0),
            x_share: true,
            y,
            guide: &[(0.0, 0.0), (1.0, 1.0)],
            sets: &sets,
        };
        let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        let title = format!("On time: ours against the best baseline, {}", part.title);
        self.figure(n, &title, "Below the dashed line ours are behind.", &names, Sample::Line, &[("", cloud.draw())])
    }

    /// Points behind the best baseline and behind the best path alone, in order.
    fn regrets(&self, part: &Part, n: u32) -> String {
        let draw = |of: fn(&Standing) -> Option<&Regret>| {
            let mut sets: Vec<Set> = self.each(
                |name, cell, standing| {
                    let regret = of(standing)?;
                    let half = regret.half_width.map_or_else(String::new, |half| format!(" ± {half:.1}"));
                    let points = regret.points.clamp(-MOST_POINTS, MOST_POINTS);
                    let title = format!(
                        "cell {}: {name} is {:.1}{half} points behind {}; {}",
                        cell.number, regret.points, regret.than, cell.description
                    );
                    Some(Mark { at: (0.0, points), title })
                },
                part,
                true,
            );
            for set in &mut sets {
                set.points.sort_by(|a, b| b.at.1.total_cmp(&a.at.1));
                let count = set.points.len() as f64;
                set.points.iter_mut().zip(1u32..).for_each(|(mark, rank)| mark.at.0 = f64::from(rank) / count);
            }
            let domain = (-MOST_POINTS, MOST_POINTS);
            let y = YAxis { title: "points behind".into(), share: false, domain, log: false, infinite: false };
            let cloud = Cloud {
                size: Size::Half,
                label: "points behind, in order",
                x_title: "of the cells, worst first",
                x: (0.0, 1.0),
                x_share: true,
                y,
                guide: &[(0.0, 0.0), (1.0, 0.0)],
                sets: &sets,
            };
            cloud.draw()
        };
        let panels = [
            ("the best baseline", draw(|standing| standing.baseline.as_ref())),
            ("the best path alone", draw(|standing| standing.alone.as_ref())),
        ];
        let names: Vec<&str> = self.results.summaries.iter().map(|summary| summary.contender.as_str()).collect();
        let note = format!("Beyond {MOST_POINTS} points either way lies what is further.");
        self.figure(n, &format!("Points behind, {}", part.title), &note, &names, Sample::Line, &panels)
    }

    /// A set of marks for each that is judged.
    fn each(
        &self,
        mark: impl Fn(&str, &CellResults, &Standing) -> Option<Mark>,
        part: &Part,
        joined: bool,
    ) -> Vec<Set> {
        let judged = |name: &str| self.results.summaries.iter().any(|summary| summary.contender == name);
        let set = |(name, look): (&str, &super::plot::Look)| {
            let of = |cell: &CellResults| {
                let score = cell.scores.iter().find(|score| score.contender == name)?;
                mark(name, cell, (part.of)(score)?)
            };
            let points = self.results.cells.iter().filter_map(of).collect();
            Set { name: name.to_owned(), look: look.clone(), points, joined }
        };
        self.cast.all().filter(|(name, _)| judged(name)).map(set).collect()
    }

    fn summaries(&self) -> String {
        let mut html = String::from(
            "<section><h2>Over all cells</h2>\n<div class=\"scroll\"><table><thead><tr><th>of the bound</th><th>mean</th><th>least</th>\
             <th>99 % reach</th><th>95 % reach</th><th>75 % reach</th><th>50 % reach</th><th>easy: mean</th><th>easy: 95 % reach</th>\
             <th>behind the best baseline by &gt; 2</th><th>&gt; 10</th><th>behind the best path alone by &gt; 2</th><th>&gt; 10</th>\
             </tr></thead><tbody>\n",
        );
        let row = |name: &str, of: &Overall| {
            let mut cells = vec![name.to_owned()];
            let Overall { shares, easy, baseline, alone } = of;
            cells.extend([shares.mean, shares.least, shares.p1, shares.p5, shares.p25, shares.p50].map(percent));
            cells.extend([easy.mean, easy.p5].map(|share| if easy.cells > 0 { percent(share) } else { "–".into() }));
            for behind in [baseline, alone] {
                let doubt =
                    if behind.in_doubt > 0 { format!(" (+{} in doubt)", behind.in_doubt) } else { String::new() };
                cells.push(format!("{}{doubt} of {}", behind.by_2, behind.cells));
                cells.push(behind.by_10.to_string());
            }
            format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"))
        };
        for summary in &self.results.summaries {
            html.push_str(&row(&self.cast.swatch(&summary.contender), &summary.all));
            html.push_str(&row("first second", &summary.start));
        }
        html + "</tbody></table></div></section>\n"
    }

    fn worst(&self) -> String {
        let points = |score: &Score| {
            let regrets = [&score.all.baseline, &score.all.alone];
            regrets.into_iter().flatten().map(|regret| regret.points).fold(f64::NEG_INFINITY, f64::max)
        };
        let of = |cell| -> Vec<(f64, &CellResults, &Score)> {
            let cell: &CellResults = cell;
            cell.scores.iter().map(|score| (points(score), cell, score)).collect()
        };
        let mut rows: Vec<_> = self.results.cells.iter().flat_map(of).collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut html = String::from(
            "<section><h2>The worst cells</h2>\n<div class=\"scroll\"><table><thead><tr><th>cell</th><th class=\"where\">what it is</th><th>who</th>\
             <th>on time</th><th>bound</th><th>behind the best baseline</th><th>behind the best path alone</th></tr></thead><tbody>\n",
        );
        for (_, cell, score) in rows.into_iter().take(WORST) {
            let regret = |regret: Option<&Regret>| {
                regret.map_or_else(
                    || "–".into(),
                    |regret| {
                        let half = regret.half_width.map_or_else(String::new, |half| format!(" ± {half:.1}"));
                        format!("{:.1}{half} <small>{}</small>", regret.points, escape(&regret.than))
                    },
                )
            };
            let easy = if cell.is_easy() { " <small>easy</small>" } else { "" };
            let end = if cell.has_ended(&score.contender) { " <span class=\"mark-fails\">†</span>" } else { "" };
            let _ = writeln!(
                html,
                "<tr><td>{}{easy}</td><td class=\"where\">{}</td><td>{}</td><td>{}{end}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                cell.number,
                escape(&cell.description),
                self.cast.swatch(&score.contender),
                percent(score.all.on_time),
                percent(score.all.average),
                regret(score.all.baseline.as_ref()),
                regret(score.all.alone.as_ref()),
            );
        }
        html + "</tbody></table></div>\n<p class=\"note\">One of them by itself: <code>punctual eval gauntlet --show CELL &gt; cell.toml</code>, \
                then <code>punctual eval run cell.toml</code>.</p></section>\n"
    }

    fn failures(&self) -> String {
        let failed = self.results.cells.iter().flat_map(|cell| {
            let runs = cell.runs.iter().filter_map(move |run| Some((run, run.failure.clone()?)));
            runs.map(|(run, why)| crate::results::FailedRun {
                place: format!("cell {}, {}", cell.number, run.contender),
                seed: run.seed,
                why,
            })
        });
        headline::failures(&failed.collect::<Vec<_>>())
    }
}
