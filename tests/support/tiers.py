"""The thorough tests: bash tests/run.sh leaves them out, bash tests/run.sh --all and CI run them.

A test that is not named here is quick. Each entry has a reason. Tests of minutes have the marker ``slow`` at the test
itself and are left out as well.
"""

from pathlib import Path

import pytest

from support.building import usual_gate

TESTS = Path(__file__).parents[1]
ALL = "all tests of the file"

# {file: {test function: why it is thorough}}
THOROUGH = {
    "analog/test_analog_command.py": {"test_the_same_seed_gives_the_same_report": "7 s: 17 translations"},
    "analog/test_counting.py": {
        "test_reads_and_conversions_are_those_of_decoding": "25 s; quick: test_mixing_weights_on_several_crossbars",
    },
    "analog/test_mixing.py": {
        "test_law": "40 s; quick: test_without_noise_and_with_enough_bits_a_model_is_the_digital_one"
    },
    "data_prep/test_corpus.py": {
        "test_processes_change_nothing": "18 s: data are prepared four times; quick: test_lines has it for one stage",
        "test_a_disk_that_fills_up": "11 s: data are prepared until each of the stages fails",
    },
    "data_prep/test_kill.py": {ALL: "70 s: data are prepared once for each stage that is killed"},
    "data_prep/test_published.py": {
        "test_another_option_makes_only_what_depends_on_it": "6 s",
        "test_card_and_translation_agree_with_the_data": "15 s",
        "test_text_that_needs_a_registration_is_used_where_it_is": "9 s",
        "test_wmt14_is_what_its_script_makes": "10 s; quick: test_iwslt14_is_what_its_script_makes",
        "test_wmt18_splits_chinese_by_jieba_and_learns_apart": "6 s",
    },
    "docs/test_site.py": {ALL: "20 s: builds the site"},
    "docs/test_tour.py": {"test_every_cell_runs": "90 s: prepares, trains, translates, draws"},
    "end_to_end/test_epochs.py": {
        "test_resuming_changes_nothing": "11 s",
        "test_resuming_a_language_model_changes_nothing": "3 s",
        "test_every_interval_has_its_checkpoint": "5 s",
    },
    "end_to_end/test_every_mixer.py": {
        "test_arch_trains_resumes_and_translates": "80 s; quick: the trained model of test_translation",
        "test_options_train_and_translate": "10 s",
        "test_cross_mixer_measures_the_length_ratio_and_keeps_it": "11 s",
    },
    "end_to_end/test_language_modeling.py": {
        "test_hydra": "6 s",
        "test_training_resumes_to_the_same_weights": "2 s",
    },
    "gpu/test_simulated.py": {"test_everything": "4 minutes; quick: one mixer, and the faults"},
    "kernels/test_kernels.py": {
        "test_they_compile_for_gpus": "60 s of CPU time: compiles every program",
    },
    "inference/test_search_commands.py": {
        "test_processes_find_the_same": "10 s: starts two processes",
    },
    "laws/test_compiled_layers.py": {
        ALL: "tracing takes seconds; quick: one mixer compiled by itself, in test_build_mixer"
    },
    "test_compile.py": {
        "test_training_has_equal_gradients_and_validation_is_not_compiled": "20 s; quick: test_the_command_compiles",
        "test_translations_are_equal": "15 s",
        "test_steps_have_graphs_for_all_positions": "15 s",
    },
    "laws/test_laws.py": {
        "test_compiling_changes_nothing": "110 s; quick: one mixer compiled by itself, in test_build_mixer",
    },
    "end_to_end/test_training.py": {
        "test_hydra": "8 s",
        "test_killed_training_resumes_to_the_same_weights": "7 s",
        "test_a_training_goes_on_with_its_loss_in_chunks_and_back": "12 s; quick: tests/test_chunked_loss.py",
        "test_compiled_layers_train_alike_and_resume": "20 s: traces layers; quick: tests/test_compile.py",
        "test_two_processes_train_like_one": "17 s",
    },
    "eval/test_score_runs.py": {"test_a_hundred_thousand_lines": "8 s"},
    "eval/test_significance.py": {
        "test_p_of_real_systems_is_sacrebleus": "28 s; quick: test_small_corpora_and_ties",
        "test_p_is_that_of_other_tools": "thousands of resamples of real outputs",
    },
    "hostile/test_hostile_streams.py": {
        "test_streams_of_every_command": "12 s: every command in a process of its own",
    },
    "recipes/test_beginning.py": {
        "test_fine_tuning_begins_with_the_weights": "15 s: a training, after that of the fixture",
    },
    "recipes/test_batches.py": {
        "test_criterion_of_the_options_is_estimated": "10 s",
        "test_training_that_has_begun_keeps_its_batches": "8 s: trains twice",
        "test_batch_of_a_gpu_is_what_its_memory_holds": "10 s: ten simulated training steps",
        "test_processes_share_an_update_and_have_buffers": "10 s: starts two processes",
    },
    "recipes/test_studies.py": {
        "test_a_run_leaves_its_result": "45 s: a run from the training to five translations",
    },
    "recipes/test_runs.py": {
        "test_check_before_a_training_knows_all_architectures": "6 s",
        "test_comparison": "100 s: trains and compares systems",
        "test_killed_in_every_stage_it_comes_to_the_same": "80 s: a recipe is killed in every stage",
        "test_second_machine_goes_on_as_the_first_has_found_to_be_right": "45 s",
        "test_goes_on_with_other_processes_and_batches": "35 s",
        "test_two_processes_learn_what_one_learns": "25 s; quick: the recipe that one process runs",
        "test_recipe_refuses_options_of_another_ending": "7 s",
        "test_a_finished_run_can_be_lengthened": "40 s: a recipe, twice; quick: a stage whose number has grown",
        "test_a_run_whose_schedule_depends_on_its_length_is_not_lengthened": "20 s: a training",
    },
    "test_resume.py": {
        "test_killed": "20 s: starts a process; quick: an interrupt after any batch, a file cut at any byte",
        "test_processes_go_on_with_what_one_did": "20 s: starts processes",
    },
    "test_bad_input.py": {
        "test_fairseq_missing_data": "7 s: fairseq-train in its own process, again and again",
        "test_fairseq_bad_options": "13 s: fairseq-train in its own process, again and again",
        "test_fairseq_bad_checkpoints": "11 s",
    },
    "test_bench.py": {
        "test_posnet_prepare_and_the_command_lines_write_equal_files": "12 s",
        "test_tables_are_shown": "7 s; quick: test_every_mixer_is_measured",
    },
    "test_export.py": {
        "test_graphs_translate_as_the_model": "11 s each: traces a model",
        "test_graphs_in_the_folder": "20 s: traces a model twice",
        "test_graphs_that_differ_are_not_kept": "10 s: traces a model",
    },
    "end_to_end/test_translation.py": {
        "test_generate_reaches_the_floor": "25 s: trains a model; quick: test_translate_equals_generate",
        "test_training_does_not_go_on_from_a_precomputed_model": "6 s",
    },
    "test_training_memory.py": {
        "test_estimate_of_weights_that_sentences_share": "15 s",
        "test_mixer_that_reads_the_length_ratio_is_estimated_before_it_is_measured": "7 s",
    },
    "end_to_end/test_plugin.py": {
        "test_a_plugin_trains_and_translates_with_a_mixer_of_its_own": "15 s; quick: the laws hold for such mixers",
    },
    "end_to_end/test_documented_commands.py": {
        "test_command_works": "3 minutes; quick: every option that documents mention is known",
    },
    "eval/test_comet.py": {
        "test_nothing_is_printed": "8 s: starts a process",
    },
    "eval/test_bleurt.py": {
        "test_details_imports_no_network_and_nothing_is_printed": "6 s: starts processes",
    },
}


def usual_case(callspec):
    """Of a law: each mixer in each place with its own gate and options."""
    if "case" not in callspec.params:
        return
    case = callspec.params["case"]
    others = [str(getattr(value, "__name__", value)) for name, value in callspec.params.items() if name != "case"]
    yield (case.mixer, case.place, *others), (bool(case.options), case.gate != usual_gate(case))


def first(callspec):
    """The first test of its function."""
    yield (), ()


def one_run(callspec):
    """Of what is looked at in trained models: the first of them."""
    yield tuple(str(value) for name, value in callspec.params.items() if name != "trained"), ()


def bad_path(callspec):
    """Of paths that lead nowhere: each way to do so, and each command."""
    command, _, bad = callspec.params["row"].name.rpartition(": ")
    yield bad, ()
    yield command.split(" {")[0], ()


def program_and_end(callspec):
    """Of a table of careless use: each program with each exit code."""
    row = callspec.params["row"]
    yield (row.command.split()[0], row.code), ()


def damage(callspec):
    """Of damaged checkpoints: each damage, and each program."""
    yield callspec.params["row"].name.partition(": ")[0], ()
    yield from program_and_end(callspec)


def rposnet_first(callspec):
    """Of searches with trained models: one of them with a beam of several hypotheses, and the usual settings."""
    mixer, name = callspec.params["mixer"], callspec.params["name"]
    yield (), (mixer != "rposnet", name != "as they are", callspec.params["beam"] == 1)


# {file: {test function: kinds}}: of tests that differ in parameters alone, the first of each kind is quick. A function
# of pytest's callspec gives (kind, rank) once or more often; of a kind, the test with the lowest rank comes first.
ONE_OF_EACH_KIND = {
    "end_to_end/test_plugin.py": {"test_the_laws_hold_for_mixers_of_each_kind": first},
    "end_to_end/test_translation.py": {ALL: one_run},
    "hostile/test_hostile_streams.py": {"test_redirections": first, "test_nobody_reads": first},
    "hostile/test_hostile_paths.py": {"test_bad_path": bad_path},
    **{
        f"hostile/test_hostile_{name}.py": {"test_row": program_and_end}
        for name in "averaging links names numerics overwriting preparing scoring training translation".split()
    },
    "hostile/test_hostile_checkpoints.py": {"test_row": damage},
    "hostile/test_hostile_folders.py": {"test_row": damage},
    "inference/test_search.py": {"test_trained_models": rposnet_first},
    "kernels/test_kernels.py": {"test_results_in_the_interpreter": first},
    "laws/test_laws.py": {ALL: usual_case},
    "plots/test_inspection.py": {"test_every_mixer": usual_case},
    "plots/test_plot_command.py": {"test_language_models": first},
    "recipes/test_runs.py": {"test_options_that_leave_no_checkpoints_to_average_are_refused": first},
    "test_build_mixer.py": {"test_compiled_without_a_break_with_padding": first},
    "test_directions.py": {"test_lines_are_split_as_for_training_in_both_directions": first},
    "test_length_ratio.py": {"test_damaged_data_is_named": first},
    "test_training_memory.py": {
        "test_estimate_is_what_the_profiler_sees": first,
        "test_estimate_of_other_shapes": first,
    },
    "laws/test_mixer_laws.py": {ALL: usual_case},
}


def mark_thorough(items):
    """Give the marker ``thorough`` to the tests that are."""
    first = {}
    for item in items:
        file, function = named(item)
        if {ALL, function} & THOROUGH.get(file, {}).keys():
            item.add_marker(pytest.mark.thorough)
        for kind, rank in kinds(item):
            if kind not in first or rank < first[kind][0]:
                first[kind] = rank, item
    quick = {id(item) for _, item in first.values()}
    for item in items:
        if id(item) not in quick and any(True for _ in kinds(item)):
            item.add_marker(pytest.mark.thorough)


# Files that take minutes without a slow test.
LONG = {
    "docs/test_first_hour.py",
    "end_to_end/test_documented_commands.py",
    "gpu/test_gpu_check.py",
    "gpu/test_simulated.py",
    "recipes/test_runs.py",
}


def longest_first(items):
    """Put files that take minutes before all others, so that no worker is left with one of them at the end."""
    long = {item.path for item in items if item.get_closest_marker("slow")} | {TESTS / name for name in LONG}
    items.sort(key=lambda item: item.path not in long)


def named(item):
    """The file of a test, as above, and its function."""
    path = item.path.relative_to(TESTS) if item.path.is_relative_to(TESTS) else item.path
    return str(path), getattr(item, "originalname", None) or item.name


def kinds(item):
    """(kind, rank) of a test, none if it is the only one of its function."""
    file, function = named(item)
    chosen = ONE_OF_EACH_KIND.get(file, {})
    of = chosen.get(function, chosen.get(ALL))
    if of is not None and hasattr(item, "callspec"):
        for kind, rank in of(item.callspec):
            yield (file, function, kind), rank
