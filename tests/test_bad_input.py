"""Every command and every public name, given what it cannot use: one sentence that says what to fix, never a traceback.

A new command or public name must add its cases to the tables: the last test fails until it does.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import os
import re
import shutil
import signal
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fgmix as package
from fgmix.cli import app
from fgmix.data import LoadOptions, from_arrays, load
from fgmix.deploy.terms import Terms
from fgmix.networks import build_featurizer
from fgmix.records.digests import digest_of, seal_line, seal_zip
from fgmix.records.files import read_json, write_json
from fgmix.training.resolve import resolve
from workbench import Workbench, fgmix, save_npz, words_of

LIMIT = 60  # seconds after which a command counts as hanging
WITHOUT_INPUT = {"__version__", "UserError"}  # public names that nothing can be passed to

TRAIN = "--dataset {arrays} --algorithm erm --test-domain us --steps 2 --device cpu --quiet --out {new}"
FIT = "{arrays} --algorithm erm --steps 2 --no-estimate --device cpu --quiet --out {new}"
SWEEP = "--datasets {arrays} --algorithms erm --trials 1 --hparams 1 --out {new}"
PLAN = "--datasets {arrays} --algorithms erm --trials 1 --hparams 1 --with steps=2"
MANY = ",".join(map(str, range(1, 1002)))

# Arguments of commands and what is said about them; {name} is a place on the workbench, among the odd files, or new.
COMMANDS: dict[str, dict[str, str]] = {
    "train": {
        "": "Missing option '--dataset'",
        f"{TRAIN} --steps 0": "`steps` should be an integer between 1 and 10,000,000",
        f"{TRAIN} --steps -1": "Found -1",
        f"{TRAIN} --steps 1{'0' * 30}": "between 1 and 10,000,000",
        f"{TRAIN} --steps 1.5": "Invalid value for '--steps'",
        f"{TRAIN} --steps nan": "Invalid value for '--steps'",
        f"{TRAIN} --batch-size 0": "`batch_size` should be",
        f"{TRAIN} --batch-size 100000000000": "between 1 and 100,000",
        f"{TRAIN} --image-size -1": "`image_size` should be",
        f"{TRAIN} --image-size 100000": "between 0 and 4,096",
        f"{TRAIN} --image-size 64": "Only images in files are resized",
        f"{TRAIN} --seed -1": "`seed` should be zero or a positive integer",
        f"{TRAIN} --trial-seed -1": "`trial_seed` should be",
        f"{TRAIN} --hparams-seed -1": "`hparams_seed` should be",
        f"{TRAIN} --holdout-fraction 0": "`holdout_fraction` should be a number greater than 0",
        f"{TRAIN} --holdout-fraction nan": "`holdout_fraction` should be finite",
        f"{TRAIN} --holdout-fraction 1e-9": "too few to hold out",
        f"{TRAIN} --eval-every 0": "`eval_every` should be",
        f"{TRAIN} --checkpoint-every -3": "`checkpoint_every` should be",
        f"{TRAIN} --checkpoint-minutes -1": "`checkpoint_minutes` should be",
        f"{TRAIN} --precision half": "Unknown `precision` 'half'",
        f"{TRAIN} --bf16 --precision fp16": "Found --bf16 and --precision fp16",
        f"{TRAIN} --snapshots 100000000000": "`snapshots` should be",
        f"{TRAIN} --classes-per-batch 99": "at most 3, the number of classes",
        f"{TRAIN} --averaging swaa": "Did you mean 'swa'?",
        f"{TRAIN} --freeze 1": "Expected at most 0 sections to freeze",
        f"{TRAIN} --freeze -1": "`freeze` should be",
        f"{TRAIN} --warmup-head -1": "`warmup_head` should be",
        f"{TRAIN} --algorithm sam+fish": "an update of its own",
        f"{TRAIN} --algorithm sma+erm": "Did you mean 'sam'?",
        f"{TRAIN} --dropout 1": "`dropout` should be a number at least 0 and below 1",
        f"{TRAIN} --head foo": "Known: linear, mlp",
        f"{TRAIN} --keep some": "Known: all, best, none",
        f"{TRAIN} --protocol dirty": "Known: clean, domainbed-2020, domainbed-2024",
        f"{TRAIN} --backbone resnet9999": "Unknown backbone 'resnet9999'",
        f"{TRAIN} --backbone resnet18": "Use `mlp` or `identity`",
        f"{TRAIN} --pretrained": "has no pre-trained weights",
        f"{TRAIN} --pretrained --weights {{arrays}}": "one of them",
        f"{TRAIN} --weights nowhere.pt": "Found none",
        f"{TRAIN} --weights=": "Expected a value after --weights. Found an empty one",
        f"{TRAIN} --backbone=": "Expected a value after --backbone",
        "--dataset= --algorithm erm --test-domain us --out {new}": "Expected a value after --dataset",
        f"{TRAIN} --weights {{odd}}/endless": "Found something else",
        f"{TRAIN} --weights {{odd}}/pipe": "Found something else",
        f"{TRAIN} --weights {{odd}}/loop": "Too many levels of symbolic links",
        f"{TRAIN} --weights {{images}}": "Found a folder",
        f"{TRAIN} --weights {{arrays}}": "cannot be loaded",
        f"{TRAIN} --device abacus": "Try auto or cpu",
        f"{TRAIN} --device meta": "Found 'meta'",
        f"{TRAIN} --device cuda:x": "Try auto or cpu",
        f"{TRAIN} --device hpu:0": "Try auto or cpu",
        f"{TRAIN} --set lr=1 --set lr=2": "Expected --set lr=… once",
        f"{TRAIN} --algorithm mixup --set alpha=1e-300": "`alpha` should be a number at least 1e-06",
        "--dataset {images} --algorithm erm --test-domain art --backbone vit_tiny_patch16_224 --image-size 9 --steps 2 "
        "--quiet --out {new}": "Raise the image size",
        f"{TRAIN} --set lr=nan": "`lr` should be finite",
        f"{TRAIN} --set lr=-1": "`lr` should be a positive number",
        f"{TRAIN} --set lr=fast": "Found 'fast'",
        f"{TRAIN} --set lr": "Expected --set name=value",
        f"{TRAIN} --set =3": "Expected --set name=value",
        f"{TRAIN} --set steps=3": "given with --steps",
        f"{TRAIN} --set lrr=1": "Did you mean 'lr'?",
        f"{TRAIN} --algorithm Erm": "Did you mean 'erm'?",
        f"{TRAIN} --task domain_adaptation": "trains on the source domains alone",
        f"{TRAIN} --hparams_seed 3": "a sweep samples hyper-parameters",
        f"{TRAIN} --hparams {{{{lr": "as a JSON object",
        f"{TRAIN} --set resnet_dropout=0.1": "Use `--dropout`",
        f"{TRAIN} --algorithm l2a_ot": "convolutional",
        f"{TRAIN} --dataset RotateMNIST": "Did you mean 'rotated_mnist'?",
        f"{TRAIN} --dataset PACS": "Pass --data-root",
        f"{TRAIN} --dataset PACS --data-root /nowhere": "Found nothing there",
        f"{TRAIN} --dataset {{odd}}/pipe.npz": "Found a named pipe",
        f"{TRAIN} --dataset {{odd}}/endless.npz": "Found a device",
        f"{TRAIN} --dataset {{odd}}/loop": "Too many levels of symbolic links",
        f"{TRAIN} --test-domain us": "Name each one once",
        f"{TRAIN} --test-domain mars": "Known: ct, mr, us",
        f"{TRAIN} --test-domain ct --test-domain mr": "Expected a source domain to train on",
        f"{TRAIN} --log tensorbord": "Did you mean 'tensorboard'?",
        f"{TRAIN} --out /proc/x": "Choose another --out",
        f"{TRAIN} --out {{arrays}}": "Not a directory",
        f"{TRAIN} --arm {'x' * 81}": "printable, not blank, 80 characters at most",
        f"{TRAIN} --set lr=1e400": "`lr` should be finite",
        f"{TRAIN} --checkpoint-minutes inf": "`checkpoint_minutes` should be",
        f"{TRAIN} --log tensorboard,wandb": "Unknown target of --log 'tensorboard,wandb'",
        f"{TRAIN} --dataset {{odd}}/one_class.npz": "at least two classes to tell apart",
        f"{TRAIN} --dataset {{odd}}/blank.csv": "Found no label in line 4",
        f"{TRAIN} --dataset {{odd}}/twice.csv": "in lines 2 and 4. Remove one",
        f"{TRAIN} --dataset {{odd}}/short.csv": "Expected 3 cells in line 4",
        f"{TRAIN} --dataset {{odd}}/open_quote.csv": "Save it again as CSV",
        f"{TRAIN} --dataset {{odd}}/utf16.csv": "Save it as UTF-8",
        f"{TRAIN} --dataset {{odd}}/parts.csv": "Expected train or holdout as split",
        f"{TRAIN} --dataset {{odd}}/semicolons.csv": "separated by commas",
        f"{TRAIN} --dataset {{odd}}/elsewhere.csv": "Found no 'nowhere.png' (line 4)",
        f"{TRAIN} --dataset {{odd}}/pipe.csv": "Found a named pipe",
    },
    "fit": {
        "": "Missing argument",
        f"{FIT} --min-confidence 2": "`min_confidence` should be a number between 0 and 1",
        f"{FIT} --target-accuracy 0": "`target_accuracy` should be a number greater than 0 and at most 1",
        f"{FIT} --metric f1": "`metric`",
        f"{FIT} --class-weight even": "`class_weight`",
        f"{FIT} --min-confidence nan": "Found nan",
        f"{FIT} --steps 0": "`steps` should be",
        f"{FIT} --algorithm erms": "Did you mean 'erm'?",
        f"{FIT} --device meta": "Found 'meta'",
        f"{FIT} --keep none": "Use best or all",
        f"{FIT} --set lr=0": "`lr` should be a positive number",
        f"{FIT} --set lr=1e30": "Lower the learning rate",
        f"{FIT} --out /proc/x": "Choose another --out",
        f"{FIT} --out {{odd}}": "Expected an empty folder or a model",
        f"{FIT} --out {{model}} --seed 3": "a model of other settings",
        f"{FIT} --averaging swad --averaging-start 3": "has no effect with --averaging swad",
        f"{FIT} --frozen": "`frozen` should be false for",
        f"{FIT} --views 2": "`views` should be 0 without --frozen",
        f"{FIT} --views -1": "`views` should be",
        "{odd}/pipe.npz --out {new}": "Found a named pipe",
        "{odd}/endless.npz --out {new}": "Found a device",
        "{odd}/no_x.npz --out {new}": "Expected the arrays X, y and domain",
        "{odd}/empty --out {new}": "Found none",
        "nowhere/at/all --out {new}": "Found nothing there",
    },
    "soup": {
        "": "Missing argument",
        "{erm}": "Missing option '--out'",
        "{erm} --out {new}": "at least two finished runs",
        "{erm} {fgmix} --out {new} --how hot": "Unknown kind of soup 'hot'",
        "{erm} {fgmix} --out {new} --weights swad": "Found 'swad'",
        "{erm} {fgmix} --out {odd}": "a new or an empty folder",
        "{erm} {fgmix} --out {new} --device abacus": "Try auto or cpu",
        "{erm} {fgmix} --out {new} --dataset {images} --quiet": "Found other data",
        "{erm} {odd}/nowhere --out {new}": "Expected finished runs",
        "{erm} {erm} --out {new}": "Found 1. Name more runs",
        "{erm} {fgmix} --trial-seed 9 --out {new}": "Found 0. Name more runs",
        "{odd}/packed/joined.records.xz --out {new}": "Expected finished runs",
        "{erm} {odd}/records/high --out {new}": "between 0 and 1",
        "{images} --out {new}": "Expected finished runs",
    },
    "predict": {
        "": "Missing argument",
        "{odd}/empty {arrays}": "Make one with `fgmix fit`",
        "{erm} {arrays}": "Make one with `fgmix fit`",
        "{odd}/cut_model {arrays}": "its runs are kept",
        "{odd}/deep_model {arrays}": "its runs are kept",
        "{odd}/pipe_model {arrays}": "Found something else",
        "{odd}/half_model {arrays}": "Found none",
        "{odd}/shape_model {arrays}": "`input_shape` should be positive integers",
        "{odd}/mean_model {images}": "numbers that images can be normalised by",
        "{model} {odd}/nowhere.npz": "No such file or directory",
        "{model} {odd}/pipe.npz": "It is a named pipe",
        "{model} {odd}/endless.npz": "It is a device",
        "{model} {odd}/announced.npz": "as it announces",
        "{model} {odd}/no_x.npz": "Expected an array X",
        "{model} {odd}/wide.npz": "Found an array of shape (3, 5)",
        "{model} {odd}/rowless.npz": "Found none",
        "{model} {odd}/text.npz": "Expected real numbers",
        "{model} {arrays} {arrays}": "Expected one .npz file",
        "{model} {images}": "Pass an .npz file with X",
        "{model} {arrays} --device meta": "Found 'meta'",
        "{model} {arrays} --out {arrays}": "Choose another --out",
        "{model} {arrays} --out {odd}/nowhere/x.csv": "Make it first",
        "{image_model} {arrays}": "Found an array",
        "{image_model} {odd}/nowhere.csv": "Expected a CSV manifest",
        "{model} {arrays} --format xml": "Unknown format 'xml'",
        "{image_model} {odd}/empty": "Found none",
    },
    "export": {
        "": "Missing argument",
        "{odd}/empty": "Make one with `fgmix fit`",
        "{odd}/cut_model": "its runs are kept",
        "{model} --format tflite": "Known: onnx, pt2",
        "{model} --out {new}.pt2": "Expected a name that ends in .onnx",
        "{model} --out {odd}/nowhere/m.onnx": "Make it first",
        "{model} --format pt2 --out {odd}/taken.pt2": "Choose another --out",
    },
    "report": {
        "": "Found neither. Name one",
        "{odd}/nowhere": "Found none",
        "{odd}/empty": "fgmix sweep --out",
        "{arrays}": "Found another file or a damaged one",
        "{odd}/loop": "Too many levels of symbolic links",
        "{odd}/records/junk": "it is damaged",
        "{odd}/records/deep": "it is damaged",
        "{odd}/records/pipe": "Found something else",
        "{odd}/records/schema": "Found schema 99",
        "{odd}/records/high": "between 0 and 1",
        "{odd}/records/nan": "between 0 and 1",
        "{odd}/records/text": "not whole",
        "{odd}/records/number": "not whole",
        "{odd}/records/no_domains": "names of all domains",
        "{odd}/records/no_domain": "not whole",
        "{odd}/records/status": "done or diverged",
        "{odd}/records/step": "`step` should be an integer from 0 to",
        "{odd}/records/spec": "Expected the options",
        "{odd}/records/nothing": "those of a finished run",
        "{sweep} --format nope": "Known: csv, html, latex, md",
        "{sweep} --format html --out /proc/x.html": "Expected to write /proc/x.html",
        "{sweep} --format html --out {odd}/mine.html": "Choose another path",
        "{sweep} --format html --out {odd}/pipe": "Choose another path",
        "{sweep} --out {new}": "Expected --out with --format html",
        "{sweep} --selection luck": "Unknown selection rule 'luck'",
        "{sweep} --spread wide": "Known: std, stderr",
        "{sweep} --port 99": "--port has no effect without --serve",
        "{sweep} --serve --port -1": "Invalid value for '--port'",
        "{sweep} --serve --port 99999": "Invalid value for '--port'",
        "{sweep} --serve --format csv": "--format has no effect with --serve",
        "{sweep} --explain scans erm": "requires 3 arguments",
        "{sweep} --explain scans ERM us": "Did you mean 'scans erm us'?",
        "{sweep} --explain scans erm us --spread std": "--spread has no effect with --explain",
        "--from-domainbed {sweep}": "each with a results.jsonl",
        "--from-domainbed {odd}/nowhere": "Found none",
        "{sweep} {sweep}": "Found one of them twice",
        "{sweep} --from-domainbed": "requires an argument",
        "{sweep} --title T": "Expected --title with --format html or --serve",
        "{sweep} {arrays} --serve": "Expected one folder with --serve",
        "{sweep} --to-domainbed {arrays}": "Choose another --to-domainbed",
        "{sweep} --pack {new}.txt": "ends in .records.xz",
        "{sweep} --pack {new}/nowhere/a.records.xz": "Make it first",
        "{odd}/packed/cut.records.xz": "pack the runs again",
        "{odd}/packed/deep.records.xz": "pack the runs again",
        "{odd}/packed/empty.records.xz": "Found none. Pack finished runs",
        "{odd}/packed/foreign.records.xz": "Found schema 99",
        "{odd}/packed/joined.records.xz": "Found more after its end",
        "{odd}/pipe": "Found something else",
        "--from-domainbed {odd}/domainbed/high": "between 0 and 1",
        "--from-domainbed {odd}/domainbed/infinite": "unreadable line",
        "--from-domainbed {odd}/domainbed/deep": "unreadable line",
        "--from-domainbed {odd}/domainbed/number": "unreadable line",
        "--from-domainbed {odd}/domainbed/far": "unreadable line",
        "--from-domainbed {odd}/domainbed/pipe": "Found something else",
    },
    "status": {
        "": "Missing argument",
        "{odd}/nowhere": "Start one with",
        "{odd}/plans": "Delete it and rerun the sweep",
        "{odd}/escape": "Delete it and rerun the sweep",
        "{odd}/packed/joined.records.xz": "Found no plan and no run",
        "{sweep} --every -1 --watch": "Invalid value for '--every'",
        "{sweep} --every nan --watch": "Invalid value for '--every'",
        "{sweep} --every 3": "--every has no effect without --watch",
    },
    "plan": {
        "": "Found no --datasets and --algorithms",
        f"{PLAN} --workers 0": "Invalid value for '--workers'",
        f"{PLAN} --workers 100000000": "Invalid value for '--workers'",
        f"{PLAN} --trials 0": "`trials` should be",
        f"{PLAN} --hparams 10000000000": "`hparams` should be",
        f"{PLAN} --with steps=3": "Expected --with steps=… once",
        f"{PLAN} --grid lr=1,nan": "`lr` should be finite",
        f"{PLAN} --grid lr={MANY} --grid weight_decay={MANY}": "Expected a sweep of 1,000,000 runs at most",
        f"{PLAN} --datasets {{odd}}/pipe.npz": "Found a named pipe",
        f"{PLAN} --budget soon": "Expected a duration such as 8h",
        f"{PLAN} --device meta": "Found 'meta'",
        f"{PLAN} --out {{arrays}}": "Found a file",
        "--preset nothing": "Known: paper-ablation",
    },
    "sweep": {
        "": "Missing option '--out'",
        "--out {new}": "Found no --datasets and --algorithms",
        f"{SWEEP} --out /proc/s": "Choose another --out",
        f"{SWEEP} --out {{arrays}}": "File exists",
        f"{SWEEP} --algorithms erms": "Did you mean 'erm'?",
        f"{SWEEP} --datasets digitz": "Did you mean 'digits'?",
        f"{SWEEP} --trials 1000000000000": "`trials` should be",
        f"{SWEEP} --workers 0": "`workers` should be",
        f"{SWEEP} --workers 1000000": "`workers` should be",
        f"{SWEEP} --device meta": "Found 'meta'",
        f"{SWEEP} --device ,": "`device` should be",
        f"{SWEEP} --launcher moon": "Known: local, ray, slurm",
        f"{SWEEP} --cpus 1": "--cpus has no effect with --launcher local",
        f"{SWEEP} --slurm a=b": "--slurm has no effect with --launcher local",
        f"{SWEEP} --launcher ray --workers 3": "--workers has no effect with --launcher ray",
        f"{SWEEP} --launcher slurm --address x": "--address has no effect with --launcher slurm",
        f"{SWEEP} --launcher ray --gpus nan": "`gpus` should be finite",
        f"{SWEEP} --test-domains mars": "it has ct, mr, us",
        f"{SWEEP} --space moon": "Known: domainbed, paper",
        f"{SWEEP} --with steps=0": "`steps` should be",
        f"{SWEEP} --with dataset=x": "Unknown option of a run 'dataset'",
        f"{SWEEP} --with weights=nowhere": "Found none",
        f"{SWEEP} --set gama=3": "Unknown setting",
        f"{SWEEP} --set lr=nan": "`lr` should be finite",
        f"{SWEEP} --grid lr=": "Name at least one",
        f"{SWEEP} --grid lr=1,,2": "Found an empty value",
        f"{SWEEP} --grid lr=1 --set lr=2": "Found it in both",
        f"{SWEEP} --with steps=1e3": "Found '1e3'",
        f"{SWEEP} --log paper": "Unknown target of --log 'paper'",
        f"{SWEEP} --preset paper-cost": "Found both",
        "--preset paper-cost --scale huge --out {new}": "Known: paper, small",
        "--preset paper-cost --trials 3 --out {new}": "--trials has no effect with --preset paper-cost",
    },
    "list": {
        "": "Missing argument",
        "wishes": "Known: algorithms, backbones, datasets",
        "algorithms ERM": "Did you mean 'erm'?",
        "algorithms --family mixups": "Did you mean 'mixup'?",
        "algorithms sam+": "such as sam+coral. Found 'sam+'. Name both",
        "algorithms sam+dann": "DANN has an update of its own",
        "algorithms *+corall": "Did you mean 'sam+coral'?",
        "datasets --family mixup": "Expected --family with algorithms",
        "datasets nothing": "Unknown dataset 'nothing'",
        "backbones resnet9999": "Unknown backbone 'resnet9999'",
    },
    "doctor": {"please": "unexpected extra argument"},
    "demo": {
        "--fast --steps 2": "Found both",
        "--steps 0 --out {new}": "`steps` should be",
        "--out {arrays}": "Choose another --out",
    },
    "data check": {
        "": "Missing argument",
        "{odd}/nowhere": "Found nothing there",
        "{arrays}": "Found a file",
    },
    "data prepare": {
        "{odd}/nowhere": "Found nothing there",
        "{odd}/loop": "Too many levels of symbolic links",
        "{odd}/pipe": "Found a named pipe",
        "{images} --image-size 8 --background nocolour --quiet": "`background` should be a colour",
        "{images} --image-size 8 --cache {odd}/pipe --quiet": "Not a directory",
        "{images} --image-size 100000": "from 1 to 4096",
        "{images} --image-size 0": "Found 0",
    },
    "data download": {
        "MARS --data-root {new}": "Unknown benchmark 'MARS'",
        "PACS": "Pass --data-root",
        "PACS --data-root {arrays}": "Choose another --data-root",
        "PACS --data-root {new} --url http://[bad": "Expected an address",
        "VLCS --data-root {new} --hub": "Expected a benchmark with a mirror",
        "PACS --data-root {new} --url file:///etc/passwd": "use --archive",
        "PACS --data-root {new} --archive {odd}/pipe": "Found a named pipe",
        "PACS --data-root {new} --archive {odd}/endless": "Found a device",
        "PACS --data-root {new} --archive {odd}/loop": "Too many levels of symbolic links",
        "PACS --data-root {new} --archive {arrays} --sha256 zz": "64 hexadecimal digits",
        "PACS --data-root {new} --archive {odd}/empty": "Found a folder",
        "PACS --data-root {new} --archive {odd}/escape.zip": "escape",
        "PACS --data-root {new} --archive {arrays} --max-gb nan": "`max_gb` should be",
        "PACS --data-root {new} --archive {arrays} --max-gb 1e300": "`max_gb` should be",
    },
    "plot weights": {"--out /proc/x": "Choose another --out"},
    "plot curves": {
        "{odd}/nowhere": "Name a run's own folder",
        "{odd}/empty": "Name a run's own folder",
        "{odd}/records/high/run": "between 0 and 1",
        "{odd}/packed/joined.records.xz": "Found another file",
    },
    "plot cd": {
        "{odd}/nowhere": "Found none",
        "{sweep}": "at least 3 methods",
        "{sweep} --dataset mars": "Unknown dataset of this sweep 'mars'",
        "{sweep} --selection luck": "Unknown selection rule",
    },
    "plot sensitivity": {
        "": "Make one with `fgmix sweep --grid",
        "{sweep}": "Make one with `fgmix sweep --grid",
        "--published --selection luck": "--selection has no effect without the folder of a sweep",
    },
    "plot ablation": {"{odd}/nowhere": "Found none", "{sweep} --selection luck": "Unknown selection rule"},
    "plot cost": {"{sweep}": "paper-cost"},
    "plot tsne": {
        "{odd}/nowhere": "Name a run's own folder",
        "{sweep}": "Name a run's own folder",
        "{erm}": "Found erm",
        "{fgmix} --samples 0": "Invalid value for '--samples'",
        "{fgmix} --mixed -3": "Invalid value for '--mixed'",
        "{fgmix} --mixed 1000000000000": "Invalid value for '--mixed'",
        "{fgmix} --seed -1": "`seed` should be",
        f"{{fgmix}} --seed {10**25}": "between 0 and 4,294,967,295",
        "{fgmix} --which first": "Known: best, last",
        "{fgmix} --model big": "Known: raw, swa, swad",
        "{fgmix} --model swad": "Expected the weights last_swad",
        "{fgmix} --dataset mars": "Unknown dataset 'mars'",
        "{fgmix} --device meta": "Found 'meta'",
        "{odd}/cut_run": "it is damaged",
        "{odd}/empty_run": "it is damaged",
        "{odd}/text_run": "it is damaged",
        "{odd}/pipe_run": "Found something else",
        "{odd}/pickled_run": "it is damaged",
        "{fgmix} --beside {erm} --mixed 3": "--mixed has no effect with --beside",
    },
    "plot flatness": {
        "": "Missing argument",
        "{odd}/nowhere": "Name a run's own folder",
        "{erm} --scope moon": "Known: classifier, network",
        "{erm} --directions 0": "Invalid value for '--directions'",
    },
    "plot surface": {
        "": "Missing argument",
        "{erm}": "Expected two runs for each test domain",
        "{erm} {erm} --resolution 2 --samples 3": "Compare different runs",
        f"{{erm}} {{fgmix}} --seed {10**25}": "Invalid value for '--seed'",
        "{erm} {fgmix} --resolution 0": "Invalid value for '--resolution'",
        "{erm} {fgmix} --resolution 100000000": "Invalid value for '--resolution'",
    },
    "plot scores": {
        "{erm}": "Found erm",
        "{fgmix} --pairs 0": "Invalid value for '--pairs'",
        "{fgmix} --pairs 1000000000000": "Invalid value for '--pairs'",
    },
    "plot shift": {
        "{odd}/nowhere": "Name a run's own folder",
        "{erm} --permutations -2": "Invalid value for '--permutations'",
        "{erm} --samples 1": "Invalid value for '--samples'",
    },
    "plot redraw": {
        "": "Missing argument",
        "{odd}/nowhere.npz": "Found none",
        "{odd}/pipe.npz": "Found something else",
        "{odd}/endless.npz": "Found something else",
        "{odd}/empty": "Found a folder",
        "{odd}/announced.npz": "Compute the figure again",
        "{arrays}": "Compute the figure again",
        "{odd}/mine.html": "Compute the figure again",
    },
}

# Data, networks and batches that are sound, for calls in which something else is not.
Y, D = np.arange(90) % 3, np.arange(90) // 30
X = np.random.default_rng(0).normal(size=(90, 4)) + Y[:, None]
DATA = from_arrays(X, Y, D)
NAN = float("nan")
Z, CLASSES, DOMAINS = torch.randn(6, 8), torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])


def spec(**changes: Any) -> Any:
    return package.RunSpec(**{"dataset": "arrays", "algorithm": "erm", "test_domains": "2", "steps": 2, **changes})


def train(out: Any = "runs", device: Any = "cpu", dataset: Any = DATA, **changes: Any) -> Any:
    return package.train(spec(**changes), out, dataset=dataset, device=device, progress=False)


def create(name: Any = "erm", **changes: Any) -> Any:
    net = build_featurizer("mlp", (4,))
    parts = {"featurizer": net, "classifier": nn.Linear(net.out_features, 3), "n_domains": 2}
    return package.algorithms.create(name, **{**parts, **changes})


def estimator(**parameters: Any) -> Any:
    return package.DomainGeneralizer(**{"algorithm": "erm", "steps": 2, **parameters})


def mix(z: Any = Z, y: Any = CLASSES, domains: Any = DOMAINS, classifier: Any = None) -> Any:
    head = nn.Linear(8, 3)
    return package.FGMix(8, head)(z, y, domains, classifier or head)


Call = Callable[[Workbench], object]
PYTHON: dict[str, list[tuple[Call, str]]] = {
    "RunSpec": [
        (lambda _: spec(dataset=None), "`dataset` should be a text"),
        (lambda _: spec(algorithm=3), "`algorithm` should be a text"),
        (lambda _: spec(test_domains=(2,)), "a domain numbered 2 in an array is '2'"),
        (lambda _: spec(test_domains=2), "a name or a sequence of names"),
        (lambda _: spec(test_domains={"2": 1}), "a name or a sequence of names"),
        (lambda _: spec(settings=[1]), "a dictionary of the method's settings"),
        (lambda _: spec(settings={"steps": 3}), "given as `steps`"),
        (lambda _: spec(steps=True), "Found True"),
        (lambda _: spec(steps=NAN), "Found nan"),
        (lambda _: spec(steps=10**5000), "between 1 and 10,000,000"),
        (lambda _: spec(dropout=np.float32(NAN)), "`dropout` should be finite"),
        (lambda _: spec(bf16="yes"), "true or false"),
        (lambda _: spec(averaging=None), "one of swa, swad, none"),
        (lambda _: spec(arm="a\nb"), "a label for tables"),
        (lambda _: spec(arm=" "), "a label for tables"),
        (lambda _: spec(test_domains=[b"2"]), "names of domains"),
        (lambda _: spec(holdout_fraction="x"), "`holdout_fraction` should be"),
        (lambda _: spec(weights=b"x"), "`weights` should be"),
        (lambda _: package.RunSpec.from_dict(None), "a dictionary of a run's options"),  # type: ignore[arg-type]
        (lambda _: package.RunSpec.from_dict({"dataset": "x"}), "Found no algorithm"),
        (lambda _: package.RunSpec.from_dict({"nothing": 1}), "Unknown option of a run 'nothing'"),
    ],
    "train": [
        (lambda _: package.train(None), "`spec` should be a RunSpec"),  # type: ignore[arg-type]
        (lambda _: package.train({"dataset": "digits"}), "`spec` should be a RunSpec"),  # type: ignore[arg-type]
        (lambda _: package.train(spec(), on_evaluation=3), "a function of a spec"),  # type: ignore[arg-type]
        (lambda _: train(out=None), "`out` should be a path"),
        (lambda _: train(out="a\0b"), "`out` should be a path"),
        (lambda _: train(dataset=X), "Make one with fgmix.data.from_arrays"),
        (lambda b: train(out=b.root / "new", device=None), "`device` should be a name"),
        (lambda b: train(out=b.root / "new", device="meta"), "Found 'meta'"),
        (lambda _: train(test_domains=("2", "9")), "Known: 0, 1, 2"),
        (lambda _: train(test_domains=["2", "2"]), "Name each one once"),
        (lambda _: train(settings={"gamma": 3}), "Unknown setting 'gamma'"),
        (lambda _: train(settings={"lr": NAN}), "`lr` should be finite"),
        (lambda _: train(settings={1: 2}), "Unknown setting '1'"),
        (lambda _: train(image_size=32), "Only images in files are resized"),
    ],
    "read_record": [
        (lambda _: package.read_record(None), "`path` should be a path"),  # type: ignore[arg-type]
        (lambda _: package.read_record("a\0b"), "`path` should be a path"),
        (lambda _: package.read_record("nowhere"), "Name a run's own folder"),
        (lambda _: package.read_record("x" * 5000), "Name a run's own folder"),
        (lambda b: package.read_record(b.sweep), "Name a run's own folder"),
        (lambda b: package.read_record(b.arrays), "Found another file"),
        (lambda _: package.read_record(3), "`path` should be a path"),  # type: ignore[arg-type]
        (lambda _: package.read_record("/dev/zero"), "Found something else"),
    ],
    "RunRecord": [
        (lambda b: package.read_record(b.erm).selected("swad"), "raw, swa"),
        (lambda b: package.read_record(b.erm).test_accuracy("big"), "raw, swa"),  # type: ignore[arg-type]
        (lambda b: package.read_record(b.erm).open("big"), "raw, swa"),  # type: ignore[arg-type]
        (lambda b: package.read_record(b.erm).open(dataset=X), "a DomainDataset, a name or a path"),  # type: ignore[arg-type]
        (lambda b: package.read_record(b.erm).open(dataset="mars"), "Unknown dataset 'mars'"),
        (lambda b: package.read_record(b.erm).open(dataset=DATA), "Found other data"),
        (lambda b: package.read_record(b.erm).open(device="meta"), "Found 'meta'"),
    ],
    "load_model": [
        (lambda _: package.load_model(None), "`folder` should be a path"),  # type: ignore[arg-type]
        (lambda _: package.load_model("nowhere"), "Make one with `fgmix fit`"),
        (lambda _: package.load_model("x" * 5000), "Make one with `fgmix fit`"),
        (lambda _: package.load_model(b"x"), "`folder` should be a path"),  # type: ignore[arg-type]
        (lambda b: package.load_model(b.erm), "Make one with `fgmix fit`"),
        (lambda b: package.load_model(b.model, "meta"), "Found 'meta'"),
        (lambda b: package.load_model(b.model, None), "`device` should be a name"),  # type: ignore[arg-type]
    ],
    "Model": [
        (lambda b: package.load_model(b.model).predict(X[:, :3]), "Found an array of shape (90, 3)"),
        (lambda b: package.load_model(b.model).predict(X * NAN), "Expected finite numbers"),
        (lambda b: package.load_model(b.model).predict([["a"] * 4]), "Expected real numbers"),
        (lambda b: package.load_model(b.model).predict([[1, 2], [3]]), "Expected samples of one shape"),
        (lambda b: package.load_model(b.model).predict(X, batch_size=0), "`batch_size` should be a positive integer"),
        (lambda b: package.load_model(b.model).save(None), "`folder` should be a path"),  # type: ignore[arg-type]
        (lambda b: package.load_model(b.model).save(b.root), "Expected a new or an empty folder"),
        (lambda b: package.load_model(b.image_model).predict(X), "Found an array"),
    ],
    "fit": [
        (lambda _: package.fit(None, "m"), "`dataset` should be a text"),  # type: ignore[arg-type]
        (lambda _: package.fit(X, "m"), "`dataset` should be a text"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, None), "`out` should be a path"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", algorithm="ERM"), "Did you mean 'erm'?"),
        (lambda _: package.fit(DATA, "m", nothing=3), "Unknown option of a run 'nothing'"),
        (lambda _: package.fit(DATA, "m", min_confidence="x"), "`min_confidence` should be"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", terms=3), "`terms` should be a Terms"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", terms=Terms(), licence="MIT"), "Found both (licence)"),
        (lambda _: package.fit(DATA, "m", standardize=3), "`standardize` should be"),
        (lambda _: package.fit(DATA, "m", test_domains=("2",)), "trains on all domains"),
        (lambda b: package.fit(DATA, b.root, algorithm="erm"), "Expected an empty folder or a model"),
    ],
    "DomainGeneralizer": [  # scikit-learn checks its arrays, and says so in its own words
        (lambda _: estimator(algorithm="ERM").fit(X, Y, domains=D), "Did you mean 'erm'?"),
        (lambda _: estimator(steps=0).fit(X, Y, domains=D), "`steps` should be"),
        (lambda _: estimator(settings=3).fit(X, Y, domains=D), "`settings` should be a dictionary"),
        (lambda _: estimator(device="meta").fit(X, Y, domains=D), "Found 'meta'"),
        (lambda _: estimator(metric="f1").fit(X, Y, domains=D), "Unknown `metric` 'f1'"),
        (lambda _: estimator(class_weight="even").fit(X, Y, domains=D), "Unknown `class_weight` 'even'"),
        (lambda _: estimator(class_weight={7: 1}).fit(X, Y, domains=D), "Unknown class in `class_weight` '7'"),
        (lambda _: estimator(class_weight=[1, 2, 3]).fit(X, Y, domains=D), "`class_weight` should be"),
        (lambda _: estimator(standardize="x").fit(X, Y, domains=D), "`standardize` should be True or False"),
        (lambda _: estimator().fit(X, Y, groups=D), "Found `groups`"),
        (lambda _: estimator().fit(X, Y, domains=D, sample_weight=[1]), "a weight for each of the 90 samples"),
        (lambda _: estimator().fit(X, Y, domains=D[:5]), "Found 5 in `domains`"),
        (lambda _: estimator().fit(X, Y, domains=np.full(90, NAN)), "Found nan in row 0 of `domains`"),
        (lambda _: estimator().fit(X, np.zeros(90), domains=D), "at least two classes"),
        (lambda _: estimator().fit(X * NAN, Y, domains=D), "contains NaN"),
        (lambda _: estimator().fit(X, Y[:5], domains=D), "inconsistent numbers of samples"),
        (lambda _: estimator().fit(None, Y, domains=D), "Expected 2D array"),
        (lambda _: estimator().predict(X), "not fitted yet"),
        (lambda _: estimator().fit(X.astype(complex), Y, domains=D), "Complex data not supported"),
        (lambda _: estimator().fit(X, Y, domains=D, sample_weight=-np.ones(90)), "weight"),
        (lambda _: estimator(batch_size=0).fit(X, Y, domains=D), "`batch_size` should be"),
        (lambda _: estimator(holdout_fraction=2).fit(X, Y, domains=D), "`holdout_fraction` should be"),
    ],
    "algorithms": [
        (lambda _: create("ERM"), "Did you mean 'erm'?"),
        (lambda _: create(None), "Unknown algorithm None"),
        (lambda _: create(["erm"]), "Unknown algorithm ['erm']"),
        (lambda _: create(featurizer=None), "`featurizer` should be a torch.nn.Module"),
        (lambda _: create(classifier=lambda x: x), "`classifier` should be a torch.nn.Module"),
        (lambda _: create(n_domains=0), "`n_domains` should be a positive integer"),
        (lambda _: create(n_domains="3"), "`n_domains` should be a positive integer"),
        (lambda _: create(lr=NAN), "`lr` should be finite"),
        (lambda _: create(gamma=1), "Unknown setting 'gamma'"),
        (lambda _: create(featurizer=nn.Identity(), classifier=nn.Identity()), "with parameters to train"),
        (lambda _: package.algorithms.get("nope"), "Unknown algorithm 'nope'"),
    ],
    "Algorithm": [
        (lambda _: create().step([]), "Found 0"),
        (lambda _: create().step(None), "Found a NoneType"),
        (lambda _: create().step([(torch.randn(0, 4), CLASSES[:0])] * 2), "at least one"),
        (lambda _: create("mixup").step([(torch.randn(6, 4), CLASSES[:5])] * 2), "as many labels as samples"),
        (lambda _: create().step([torch.randn(6, 4)] * 2), "Expected a batch (x, y) of tensors"),
        (lambda _: create().step([(X[:6], Y[:6])] * 2), "Expected a batch (x, y) of tensors"),
        (lambda _: package.Algorithm(None, None, 0, None), "`featurizer` should be"),  # type: ignore[arg-type]
        (lambda _: package.Algorithm(nn.Linear(2, 2), nn.Linear(2, 2), 1, None), "`config` should be"),  # type: ignore[arg-type]
    ],
    "BaseConfig": [
        (lambda _: package.BaseConfig(lr=-1), "`lr` should be a positive number"),
        (lambda _: package.BaseConfig.of(nothing=1), "Unknown setting 'nothing'"),
        (lambda _: package.BaseConfig.parse({"lr": "x"}), "Found 'x'"),
    ],
    "register": [
        (lambda _: package.register(""), "`name` should be a text"),
        (lambda _: package.register("mine")(int), "Expected a subclass"),  # type: ignore[type-var]
        (lambda _: package.register("erm")(package.Algorithm), "is registered already"),
    ],
    "testing": [(lambda _: package.testing.check_algorithm("nope"), "Unknown algorithm 'nope'")],
    "FGMix": [
        (lambda _: package.FGMix(-1, 3), "`code_size` should be an integer between 1"),
        (lambda _: package.FGMix("8", 3), "`code_size` should be an integer between 1"),  # type: ignore[arg-type]
        (lambda _: package.FGMix(10**15, 3), "between 1 and 1,000,000"),
        (lambda _: package.FGMix(8, None), "`classifier` should be"),  # type: ignore[arg-type]
        (lambda _: package.FGMix(8, 3, gamma=float("inf")), "`gamma` should be finite"),
        (lambda _: package.FGMix(8, 3, lam=NAN), "`lam` should be finite"),
        (lambda _: package.FGMix(8, 10**12), "a number of classes up to 1,000,000"),
        (lambda _: package.FGMix(8, 3, n=10**12), "`n` should be an integer between 1 and 1,000,000"),
        (lambda _: package.FGMix(8, 3, directions=10**9), "`directions` should be an integer between"),
        (lambda _: package.FGMix(8, 3, domains_per_tuple=1), "`domains_per_tuple` should be"),
        (lambda _: package.FGMix(8, nn.Identity()), "a classifier with parameters"),
        (lambda _: mix(z=Z[:, :3]), "Expected codes of shape (N, 8)"),
        (lambda _: mix(z=Z[:0]), "Expected codes of shape (N, 8)"),
        (lambda _: mix(z=None), "`z` should be a tensor"),
        (lambda _: mix(z=Z.to_sparse()), "Expected `z` as a dense tensor"),
        (lambda _: mix(y=CLASSES[:3]), "one class and one domain id per code"),
        (lambda _: mix(y=CLASSES + 9), "Expected classes from 0 to 2"),
        (lambda _: mix(domains=DOMAINS.float()), "Expected domain ids as integers"),
        (lambda _: mix(classifier=nn.Linear(9, 3)), "codes of width 8"),
    ],
    "data": [
        (lambda _: package.data.load(None), "`dataset` should be a name or a path"),  # type: ignore[arg-type]
        (lambda _: package.data.load("digitz"), "Did you mean 'digits'?"),
        (lambda _: package.data.load("digits", 3), "`options` should be a LoadOptions"),  # type: ignore[arg-type]
        (lambda _: LoadOptions(root=3), "`root` should be a path"),  # type: ignore[arg-type]
        (lambda _: package.data.load("PACS", LoadOptions(root=Path("nowhere"))), "Found nothing there"),
        (lambda _: from_arrays(X, Y[:3], D), "one label and one domain id"),
        (lambda _: from_arrays(X * NAN, Y, D), "Expected finite numbers"),
        (lambda _: from_arrays(X, Y, D, name=3), "`name` should be a text"),  # type: ignore[arg-type]
        (lambda _: from_arrays(X[:, :0], Y, D), "Found"),
        (lambda _: from_arrays(X, Y, D, classes=["a", "a", "b"]), "Found"),
    ],
}


@dataclass(frozen=True)
class Case:
    """A bad input: words after a command or a call of a public name, and a part of what is said about it."""

    of: str
    number: int
    said: str
    words: str = ""
    call: Call | None = None


CASES = [
    *(Case(of, i, said, words) for of, cases in COMMANDS.items() for i, (words, said) in enumerate(cases.items())),
    *(Case(of, i, said, call=call) for of, cases in PYTHON.items() for i, (call, said) in enumerate(cases)),
]


@pytest.fixture(scope="module")
def odd(bench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that nobody should have: pipes, endless devices, loops, halves, forgeries."""
    folder = tmp_path_factory.mktemp("odd")
    for name in ("pipe", "pipe.npz"):
        os.mkfifo(folder / name)
    for name in ("endless", "endless.npz"):
        (folder / name).symlink_to("/dev/zero")
    (folder / "loop").symlink_to("loop")
    (folder / "empty").mkdir()
    (folder / "mine.html").write_text("not a report")
    (folder / "taken.pt2").touch()
    (folder / "plans" / "sweeps").mkdir(parents=True)
    (folder / "plans" / "sweeps" / "x.json").write_text("[" * 100_000)
    (folder / "escape" / "sweeps").mkdir(parents=True)
    write_json(folder / "escape" / "sweeps" / "x.json", {"runs": ["../../etc"], "grid": [], "sweep": {}})
    _announce(folder / "announced.npz", (4 * 10**11,))
    save_npz(folder / "no_x.npz", z=np.zeros((3, 4)))
    save_npz(folder / "wide.npz", X=np.zeros((3, 5)))
    save_npz(folder / "rowless.npz", X=np.zeros((0, 4)))
    save_npz(folder / "text.npz", X=[["a"] * 4])
    save_npz(folder / "one_class.npz", X=X, y=Y * 0, domain=D)
    with zipfile.ZipFile(folder / "escape.zip", "w") as archive:
        archive.writestr("../escape", "x")
    _make_manifests(folder)
    _make_packed(bench, folder / "packed")
    _make_domainbed(folder / "domainbed")
    _make_models(bench, folder)
    _make_runs(bench, folder)
    _make_records(bench, folder / "records")
    return folder


def _announce(path: Path, shape: tuple[int, ...]) -> None:
    """An array of a few bytes whose header announces another shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(16))


def _make_manifests(folder: Path) -> None:
    head, lines = "path,label,domain\n", "a.png,cat,art\nb.png,dog,photo\n"
    for name in ("a.png", "b.png"):
        (folder / name).touch()
    texts = {
        "blank": head + lines + "c.png,,art\n",
        "twice": head + lines + "a.png,cat,art\n",
        "short": head + lines + "c.png\n",
        "open_quote": head + lines + '"c.png,cat,art\n',
        "parts": "path,label,domain,split\na.png,cat,art,train\nb.png,dog,photo,test\n",
        "semicolons": (head + lines).replace(",", ";"),
        "elsewhere": head + lines + "nowhere.png,cat,art\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "utf16.csv").write_bytes((head + lines).encode("utf-16"))
    os.mkfifo(folder / "pipe.csv")


def _make_packed(bench: Workbench, folder: Path) -> None:
    folder.mkdir()
    whole = lzma.compress(seal_line(read_json(bench.erm / "record.json")))
    deep = b'{"a": ' + b"[" * 100_000 + b"]" * 100_000
    contents = {
        "cut": whole[:-20],
        "deep": lzma.compress(deep + f', "digest": "{digest_of(deep)}"}}\n'.encode()),
        "empty": lzma.compress(b""),
        "foreign": lzma.compress(seal_line({"schema": 99})),
        "joined": whole + whole,  # a file that xz itself would read to the end
    }
    for name, content in contents.items():
        (folder / f"{name}.records.xz").write_bytes(content)


def _make_domainbed(folder: Path) -> None:
    """Runs of DomainBed with a value that it never writes."""
    args = {"dataset": "PACS", "algorithm": "ERM", "test_envs": [0], "trial_seed": 0, "hparams_seed": 0}
    scores = {f"env{i}_{part}_acc": 0.5 for i in range(2) for part in ("in", "out")}
    line = {"args": args, "hparams": {}, "step": 300, **scores}
    lines = {
        "high": {**line, "env1_out_acc": 1.7},
        "infinite": {**line, "step": float("inf")},
        "number": {**line, "args": 3},
        "far": {**line, "args": {**args, "test_envs": [9]}},
    }
    texts = {name: json.dumps(content) for name, content in lines.items()} | {"deep": "[" * 100_000}
    for name in (*texts, "pipe"):
        (folder / name / "run").mkdir(parents=True)
        (folder / name / "run" / "done").touch()
    for name, text in texts.items():
        (folder / name / "run" / "results.jsonl").write_text(text)
    os.mkfifo(folder / "pipe" / "run" / "results.jsonl")


def _make_models(bench: Workbench, folder: Path) -> None:
    for name in ("cut_model", "deep_model", "pipe_model", "half_model"):
        shutil.copytree(bench.model, folder / name, ignore=shutil.ignore_patterns("runs"))
    forged = {"shape_model": (bench.model, {"input_shape": [-4]}), "mean_model": (bench.image_model, {"mean": "x"})}
    for name, (model, change) in forged.items():
        content = read_json(model / "model.json")
        (content if name == "shape_model" else content["spec"]).update(change)
        shutil.copytree(model, folder / name, ignore=shutil.ignore_patterns("runs"))
        write_json(folder / name / "model.json", content)
    weights = "weights.safetensors"
    (folder / "cut_model" / weights).write_bytes((bench.model / weights).read_bytes()[:100])
    (folder / "deep_model" / "model.json").write_text("[" * 100_000)
    for name in ("pipe_model", "half_model"):
        (folder / name / weights).unlink()
    os.mkfifo(folder / "pipe_model" / weights)


def _make_runs(bench: Workbench, folder: Path) -> None:
    pickled = io.BytesIO()
    torch.save({"weight": Path("code that would run")}, pickled)
    contents = {
        "cut_run": (bench.fgmix / "last.pt").read_bytes()[:200],
        "empty_run": b"",
        "text_run": b"hello",
        "pickled_run": seal_zip(pickled.getvalue()),  # sealed as ours, with an object that is no tensor
    }
    for name, content in contents.items():
        shutil.copytree(bench.fgmix, folder / name)
        (folder / name / "last.pt").write_bytes(content)
    shutil.copytree(bench.fgmix, folder / "pipe_run", ignore=shutil.ignore_patterns("last.pt"))
    os.mkfifo(folder / "pipe_run" / "last.pt")


def _make_records(bench: Workbench, folder: Path) -> None:
    """Records that are junk, and sealed ones whose content no run gives."""

    def scored(value: object) -> Callable[[dict[str, Any]], None]:
        return lambda record: record["evaluations"][0]["accuracy"]["raw"]["us"].update(train=value)

    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "high": scored(1.7),
        "nan": scored(NAN),
        "text": scored("x"),
        "number": lambda record: record["evaluations"][0].update(accuracy=3),
        "no_domains": lambda record: record.update(domains=[]),
        "no_domain": lambda record: record["evaluations"][0]["accuracy"]["raw"].pop("ct"),
        "status": lambda record: record.update(status="great"),
        "step": lambda record: record["evaluations"][0].update(step=-4),
        "spec": lambda record: record.update(spec={}),
        "nothing": lambda record: record.update(evaluations=[]),
        "schema": lambda record: record.update(schema=99),
    }
    for name, change in changes.items():
        content = read_json(bench.erm / "record.json")
        change(content)
        (folder / name / "run").mkdir(parents=True)
        write_json(folder / name / "run" / "record.json", content)
    for name, text in {"junk": "junk", "deep": "[" * 100_000}.items():
        (folder / name / "run").mkdir(parents=True)
        (folder / name / "run" / "record.json").write_text(text)
    (folder / "pipe" / "run").mkdir(parents=True)
    os.mkfifo(folder / "pipe" / "run" / "record.json")


@pytest.fixture(autouse=True)
def _no_hanging() -> Iterator[None]:
    """Turns a wait without end into a failure."""

    def fail(*_: object) -> None:
        raise TimeoutError(f"no answer within {LIMIT} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def said_by(case: Case, bench: Workbench, odd: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said about a bad input, which must be all that happens."""
    if case.call is not None:
        with pytest.raises(ValueError) as raised:  # UserError is one, and what scikit-learn raises
            case.call(bench)
        is_ours = isinstance(raised.value, package.UserError)
        return str(raised.value) if is_ours else " ".join(str(raised.value).split())
    words = [*case.of.split(), *words_of(case.words, bench, odd=odd, new=new)]
    assert fgmix(*words) == 2
    errors = capsys.readouterr().err
    if "Usage:" in errors or "Error" in errors:  # typer's own, in a box
        return " ".join(re.sub("[─-╿]", " ", errors).split())
    (sentence,) = [line for line in errors.splitlines() if not line.startswith("note: ")]
    assert sentence.startswith("fgmix: ")
    return sentence


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{'fgmix.' * bool(case.call)}{case.of} {case.number}")
def test_bad_input_is_one_sentence(
    case: Case,
    bench: Workbench,
    odd: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FGMIX_DATA", raising=False)
    monkeypatch.setenv("FGMIX_CACHE", str(bench.root / "cache"))
    said = said_by(case, bench, odd, tmp_path / "new", capsys)
    assert case.said in said
    assert "\n" not in said
    assert "Traceback" not in said


def commands() -> set[str]:
    """Every registered command, as one types it."""
    found = {info.name or "" for info in app.registered_commands}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for info in group.typer_instance.registered_commands:
            name = info.name or (info.callback.__name__ if info.callback else "")
            found.add(f"{group.name} {name}")
    return found


def _with(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda evaluation: evaluation.update(changes)


@pytest.mark.parametrize("format", ["md", "html"])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x["spec"].update(dataset_name=3),
        lambda x: x["spec"].update(code_size="x"),
        *(
            lambda x, change=change: change(x["evaluations"][-1])
            for change in (
                _with(metrics=3),
                _with(metrics={"loss": "x"}),
                _with(step=10**400),
                _with(loss=[]),
                _with(loss={"raw": {"us": 3}}),
            )
        ),
    ],
)
def test_a_record_that_was_edited_never_blocks_the_others(
    bench: Workbench, tmp_path: Path, change: Callable[[Any], None], format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is skipped with a note; where its losses and metrics alone are wrong, which tables do not show, its curves."""
    out = tmp_path / "sweep"
    shutil.copytree(bench.sweep, out)
    content = read_json(bench.erm / "record.json")
    change(content)
    (out / "bad").mkdir()
    write_json(out / "bad" / "record.json", content)
    assert fgmix("report", out, "--format", format) == 0
    told = capsys.readouterr()
    assert "Skipped a record" in told.err or format == "md" or "No curves" in _unpacked(out / "report.html")


def _unpacked(page: Path) -> str:
    """The list of runs in a report."""
    packed = re.search(r'id="run-rows">([^<]*)<', page.read_text())
    assert packed
    return zlib.decompress(base64.b64decode(packed[1])).decode()


def test_a_run_with_a_long_name_has_a_folder_that_can_be_made() -> None:
    spec = package.RunSpec(dataset="digits", algorithm="erm", test_domains=("photo",))
    resolved = resolve(spec, load("digits", LoadOptions()))
    long = replace(resolved, test_domains=("é" * 300,))
    assert len(long.name.encode()) <= 255
    assert long.name != replace(resolved, test_domains=("é" * 301,)).name


def test_every_command_and_public_name_has_bad_inputs() -> None:
    assert set(COMMANDS) == commands()
    assert set(PYTHON) == set(package.__all__) - WITHOUT_INPUT
    assert all([*COMMANDS.values(), *PYTHON.values()])
    assert len(CASES) >= 150
