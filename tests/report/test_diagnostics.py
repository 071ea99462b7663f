"""Why a run went as it did: rows from a history, and sections of the page that are there only if they say something."""

import json
import sys

import pytest

from command_line import crosstask
from crosstask.methods import papers_of
from crosstask.papers import METAWEIGHTING, METAXT, MT_DNN, STACKING, TAWT
from crosstask.report.citations import METHODS_0_1, papers_of_keys, papers_of_recipe
from crosstask.report.diagnostics import DEV, HELD_OUT, MAX_CELLS, MAX_ROWS, diagnose, loss_gaps
from crosstask.report.files import Metrics, RunFiles
from crosstask.report.run_page import run_page
from crosstask.report.run_view import run_view
from crosstask.report.series import MAX_POINTS_PER_CHART, History, Point, thin_together
from crosstask.runs.events import read_events
from crosstask.runs.record import HISTORY_FILE, REPORT_FILE
from html_page import Page

HOSTILE = "</script><img src=x onerror=alert(1)>"
SECTIONS = {
    "Similarity of gradients", "Effective sample size", "Losses", "Label map", "Alignment",
    "Attention over adapters", "Merges of branches", "To cite",
}  # fmt: skip


def start(**facts):
    return [
        {"event": "start", "targets": ["a"], "sources": ["b"], "paradigm": "joint", "weighting": "tawt", **facts},
        {"event": "task", "name": "a", "kind": "classification", "sizes": {"train": 10}},
        {"event": "task", "name": "b", "kind": "classification", "sizes": {"train": 90}},
        {"event": "phase", "name": "joint", "tasks": ["a", "b"], "weights": {"a": 0.5, "b": 0.5}},
    ]


def update(number, **losses):
    weights = dict.fromkeys(losses, 0.5)
    return {"event": "update", "phase": "joint", "update": number, "losses": losses, "weights": weights}


def look(number, **facts):
    return {"event": "weighting", "phase": "joint", "update": number, "weights": {}, **facts}


def transfer(number, **facts):
    return {"event": "transfer", "name": "any", "phase": "joint", "update": number, **facts}


def dev(number, loss, score=0.5):
    scores = {"accuracy": score}
    return {"event": "dev", "phase": "joint", "update": number, "task": "a", "loss": loss, "scores": scores}


def held_out(number, **losses):
    return {"event": "held_out", "phase": "joint", "update": number, "losses": losses}


def diagnosed(*rows, offset=None):
    return diagnose(History(read_events([*start(), *rows]), offset or {"joint": 0}))


def everything(label="5 stars"):
    """A history with something for every section."""
    shares = {"neg": {"1 star": 0.9, label: 0.1}, "pos": {"1 star": 0.2, label: 0.8}}
    before = {"neg": {"1 star": 0.5, label: 0.5}, "pos": {"1 star": 0.5, label: 0.5}}
    return [
        *start(),
        update(1, a=2.0, b=1.0),
        look(1, similarities={"b": -0.5}, conflict=1.0, conflict_with_target=1.0, effective_sample_size=50.0),
        held_out(0, a=2.2, b=1.1),
        dev(1, 2.5),
        transfer(1, label_map={"a": {"b": before}}),
        update(2, a=1.0, b=0.5),
        look(2, similarities={"b": 0.5}, conflict=0.0, conflict_with_target=0.0, effective_sample_size=40.0),
        dev(2, 1.5),
        transfer(2, label_map={"a": {"b": shares}}),
        transfer(2, similarity={"a": {"b": 0.75}}, similarity_before={"a": {"b": 0.25}}),
        transfer(2, attention={"a": {"a": [0.7, 0.5], "b": [0.3, 0.5]}}),
        transfer(2, merge_weights={"a": 0.4, "b": 0.6}, branch_losses={"a": 0.9, "b": None}, merged_loss=0.8),
        {"event": "phase_end", "name": "joint", "updates": 2, "stopped_early": False, "kept": "last"},
    ]


def view_of(history):
    return run_view(RunFiles("run", read_events(history)))


def page_of(history):
    return Page(run_page(view_of(history)))


def axes_of(page, channel):
    return [
        layer["encoding"][channel] for spec in page.specs() for layer in spec["layer"] if channel in layer["encoding"]
    ]


class TestRows:
    def test_points_count_updates_over_all_phases_and_leave_null_out(self):
        rows = [look(1, similarities={"b": 0.25, "c": None}, conflict=0.5), look(3, effective_sample_size=7.0)]
        found = diagnosed(*rows, offset={"joint": 10})
        assert found.similarities == (Point("joint", 11, "b", 0.25),)
        assert found.conflicts == (Point("joint", 11, "pairs of tasks", 0.5),)
        assert found.effective_sample_size == (Point("joint", 13, "effective sample size", 7.0),)

    def test_gap_is_to_the_mean_training_loss_since_the_look_before(self):
        rows = [update(1, a=4.0), update(2, a=2.0), dev(2, 5.0), update(3, a=1.0), dev(3, 4.0)]
        (losses,) = diagnosed(*rows).losses
        assert losses.gaps == (Point("joint", 2, DEV, 5.0 - 3.0), Point("joint", 3, DEV, 4.0 - 1.0))
        assert losses.last_gaps == {DEV: 3.0}

    def test_no_gap_where_nothing_was_trained_in_between_or_in_another_phase(self):
        training = [Point("first", 1, "training", 1.0), Point("second", 2, "training", 2.0)]
        unseen = [Point("second", 2, DEV, 5.0), Point("second", 3, DEV, 6.0)]
        assert loss_gaps(training, unseen) == [Point("second", 2, DEV, 3.0)]

    def test_held_out_losses_stand_behind_the_update_they_follow(self):
        (losses,) = diagnosed(update(1, b=1.0), held_out(0, b=1.5), update(2, b=0.5), held_out(1, b=1.0)).losses
        assert [point.update for point in losses.points if point.name == HELD_OUT] == [1, 2]
        assert [(gap.update, gap.value) for gap in losses.gaps] == [(1, 0.5), (2, 0.5)]

    def test_label_map_is_that_of_the_last_look_and_its_path_leads_there(self):
        (rows,) = view_of(everything()).diagnostics.label_maps
        assert (rows.target, rows.source, rows.target_labels) == ("a", "b", ("1 star", "5 stars"))
        assert rows.fractions["pos"] == {"1 star": 0.2, "5 stars": 0.8}
        assert [(p.update, p.name, p.value) for p in rows.paths if "pos" in p.name] == [
            (1, "pos → 5 stars", 0.5),
            (2, "pos → 5 stars", 0.8),
        ]
        assert not rows.is_cut

    def test_a_large_label_map_is_cut_to_the_target_labels_that_matter(self):
        shares = {f"s{i}": {f"t{j}": 1.0 if j == 99 else 0.0 for j in range(100)} for i in range(60)}
        (rows,) = diagnosed(transfer(1, label_map={"a": {"b": shares}})).label_maps
        assert rows.is_cut
        assert "t99" in rows.target_labels
        assert len(rows.fractions) * len(rows.target_labels) <= MAX_CELLS
        assert rows.paths == ()  # one evaluation is no path
        narrow = {f"s{i}": {"t": 1.0} for i in range(300)}
        (rows,) = diagnosed(transfer(1, label_map={"a": {"b": narrow}})).label_maps
        assert (rows.is_cut, len(rows.fractions)) == (True, MAX_ROWS)

    def test_alignment_and_attention_are_those_of_the_last_look(self):
        first = transfer(1, similarity={"a": {"b": 0.1}}, similarity_before={"a": {"b": 0.1}})
        found = diagnosed(first, *everything()[4:])
        (aligned,) = found.alignments
        assert (aligned.source, aligned.before, aligned.after) == ("b", 0.25, 0.75)
        assert [(row.adapter, row.layers) for row in found.attention] == [("a", (0.7, 0.5)), ("b", (0.3, 0.5))]

    def test_merges_count_updates_over_all_phases(self):
        rows = [
            transfer(number, merge_weights={"a": 1.0}, branch_losses={"a": 0.5}, merged_loss=0.5) for number in (2, 4)
        ]
        found = diagnosed(*rows, transfer(4, similarity={}), offset={"joint": 10}).merges
        assert [merge.update for merge in found] == [12, 14]
        (merge,) = view_of(everything()).diagnostics.merges
        assert (merge.weights, merge.losses, merge.merged_loss) == ({"a": 0.4, "b": 0.6}, {"a": 0.9, "b": None}, 0.8)

    def test_many_lines_share_the_points_of_a_chart(self):
        points = [Point("joint", update, f"task {i}", 1.0) for i in range(20) for update in range(1000)]
        assert len(thin_together(points)) <= MAX_POINTS_PER_CHART
        assert len({point.name for point in thin_together(points)}) == 20


class TestPapers:
    def test_those_that_metrics_name_each_once_and_without_unknown_keys(self):
        assert papers_of_keys([TAWT.key, "somebody2030", METAXT.key, TAWT.key]) == (TAWT, METAXT)
        files = RunFiles("run", read_events(start(weighting="metaweighting")), Metrics(papers=[STACKING.key]))
        assert run_view(files).papers == (STACKING,)

    def test_of_version_0_1_paradigm_weighting_transfer_and_schedule_each_once(self):
        recipe = "transfer: [{name: label-transfer}, representation-transfer]\ntraining: {schedule: mixed}\n"
        assert papers_of_recipe(recipe, "joint", "tawt") == (TAWT, METAXT, MT_DNN)
        assert papers_of_recipe("", "stacking", "metaweighting") == (STACKING, METAWEIGHTING)

    def test_the_tables_of_version_0_1_say_what_methods_say(self):
        for paper, names in METHODS_0_1.items():
            for name in names.split():
                assert papers_of(name, name, [name], schedule=name) == (paper,)

    @pytest.mark.parametrize("recipe", ["", "[1, 2]", "{", "transfer: [{no: name}, [1], my-own]", "training: null"])
    def test_methods_that_nobody_knows_have_none(self, recipe):
        assert papers_of_recipe(recipe, "my-own", "my-own") == ()

    def test_the_page_has_their_bibtex(self):
        text = page_of(start()).text
        assert TAWT.bibtex() in text
        assert METAXT.bibtex() not in text


@pytest.mark.parametrize("charts", [True, False])
class TestPage:
    @pytest.fixture(autouse=True)
    def _charts(self, monkeypatch, charts):
        if charts:
            pytest.importorskip("altair")
            pytest.importorskip("vl_convert")
        else:
            monkeypatch.setitem(sys.modules, "altair", None)

    def test_every_section_is_there(self, charts):
        found = page_of(everything())
        # Lines over time need charts; all else has a table.
        missing = set() if charts else {"Similarity of gradients", "Effective sample size"}
        assert SECTIONS & set(found.headings) == SECTIONS - missing
        assert "0.250" in found.text
        assert "0.750" in found.text
        assert ("Share of each label of b" in found.text) == (not charts)

    def test_nothing_to_show_is_no_section(self, charts):
        found = page_of([*start(weighting=None, paradigm="my-own"), update(1, a=1.0)])
        assert SECTIONS & set(found.headings) == {"Losses"}

    def test_one_task_alone_has_its_losses_in_one_chart(self, charts):
        found = page_of([*start(), update(1, a=1.0), dev(1, 1.5)])
        names = {attributes.get("data-name") for _, attributes in found.elements}
        assert ("gap" in names) == ("losses" in names) == charts
        assert "losses-0" not in names

    @pytest.mark.parametrize(("score", "scale"), [(0.5, {"nice": True, "zero": True}), (0.0, {"domain": [0.0, 1.0]})])
    def test_the_axis_of_a_score_begins_with_zero(self, charts, score, scale):
        events = [*start(), update(1, a=1.0), dev(1, 1.5, score), dev(2, 1.4, score)]
        axes = axes_of(page_of(events), "y")
        assert [axis["scale"] for axis in axes if axis.get("title") == "accuracy"] == ([scale] if charts else [])

    def test_updates_go_from_the_first_to_the_last(self, charts):
        axes = axes_of(page_of([*start(), update(1, a=1.0), update(3, a=0.5), dev(3, 1.5)]), "x")
        updates = [axis for axis in axes if axis.get("title") == "update"]
        assert bool(updates) == charts
        for axis in updates:
            assert axis["scale"] == {"nice": False, "zero": False}
            assert axis["axis"]["tickMinStep"] == 1

    def test_what_sources_gave_a_stacked_model(self, charts):
        without = {"b": {"loss": 0.8}, "c": {"loss": 0.55}}
        fitted = {
            "event": "stacking",
            "task": "a",
            "strength": 1.0,
            "held_out": {"loss": 0.6},
            "held_out_without": without,
        }
        gains = [(row.source, round(row.gain, 2)) for row in diagnosed({**fitted, "share": 0.5}).contributions]
        assert gains == [("b", 0.2), ("c", -0.05)]
        assert "What each source gave" in page_of([*start(), {**fitted, "share": 0.5}]).text
        assert not diagnosed({**fitted, "share": 0.0}).contributions  # nothing that sources say is used

    def test_no_conflict_is_said_in_words(self, charts):
        text = page_of([*start(), look(1, conflict=0.0), look(2, conflict=0.0)]).text
        assert "No inspection of the gradients found any in conflict." in text
        assert "Share of the pairs" not in text

    def test_hostile_labels_are_text(self, charts):
        found = page_of(everything(label=HOSTILE))
        assert not found.open
        assert "img" not in found.names()
        assert not any("<" in text for text in found.data())
        assert HOSTILE in (json.dumps(found.specs()) if charts else found.text)

    def test_each_chart_has_a_caption_a_description_and_its_own_place(self, charts):
        found = page_of(everything())
        places = [attributes for _, attributes in found.elements if "data-chart" in attributes]
        names = [attributes["data-chart"] for attributes in places]
        assert len(set(names)) == len(names) == len(found.specs()) == found.names().count("figcaption")
        drawings = [attributes for _, attributes in found.elements if attributes.get("role") == "img"]
        assert len(drawings) == len(places)
        assert all(attributes["aria-label"].endswith(".") for attributes in drawings)
        if charts:
            wanted = {"similarity", "conflict", "effective", "losses-0", "losses-1", "gap", "label-map-b-a"}
            assert wanted | {"label-paths-b-a"} <= {attributes["data-name"] for attributes in places}


@pytest.mark.parametrize(
    ("method", "titles"),
    [
        ("weighting: {name: tawt, every: 5}", {"Similarity of gradients", "Effective sample size"}),
        ("weighting: {name: metaweighting, every: 4}", {"Similarity of gradients"}),
        ("transfer: [label-transfer]", {"Label map"}),
        ("transfer: [alignment]", {"Alignment"}),
        ("transfer: [{name: forkmerge, merges: 2, parts: 2}]", {"Merges of branches"}),
    ],
)
def test_sections_of_real_runs(star_files, method, titles):
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("epochs: 3", "epochs: 1")
    recipe.write_text(f"{text}{method}\n")
    outcome = crosstask("train", recipe, "-o", star_files / "run")
    assert outcome.code == 0, outcome.err
    assert (star_files / "run" / HISTORY_FILE).is_file()
    found = Page((star_files / "run" / REPORT_FILE).read_text(encoding="utf-8"))
    titles = titles | {"Losses", "To cite"}
    assert SECTIONS & set(found.headings) == titles
