"""Every command and every public name, given what it cannot use: one sentence that names it, never a traceback.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fgmix as package
from copying import replace
from fgmix.cli import app
from fgmix.data import LoadOptions, from_arrays, load
from fgmix.networks import build_featurizer
from fgmix.records.digests import digest_of, seal_line
from fgmix.records.files import read_json, write_json
from fgmix.records.model import Terms
from fgmix.records.schema import to_spec
from fgmix.training.resolve import resolve
from fgmix.training.state import write_tensors
from workbench import Workbench, fgmix, save_npz, words_of

LIMIT = 60  # seconds after which a command counts as hanging
WITHOUT_INPUT = {"__version__", "UserError"}  # public names that nothing can be passed to

TRAIN = "--dataset {arrays} --algorithm erm --test-domain us --steps 2 --device cpu --quiet --out {new}"
FIT = "{arrays} --algorithm erm --steps 2 --no-estimate --device cpu --quiet --out {new}"
SWEEP = "--datasets {arrays} --algorithms erm --trials 1 --hparams 1 --out {new}"
PLAN = "--datasets {arrays} --algorithms erm --trials 1 --hparams 1 --steps 2"
MANY = ",".join(map(str, range(1, 1002)))

# Arguments of commands, and a name or value that the error must contain. {name} is a place on the workbench, among
# the odd files, or new.
COMMANDS: dict[str, dict[str, str]] = {
    "train": {
        "": "--dataset",
        f"{TRAIN} --steps 0": "`steps`",
        f"{TRAIN} --steps -1": "`steps`",
        f"{TRAIN} --steps 1{'0' * 30}": "`steps`",
        f"{TRAIN} --steps 1.5": "--steps",
        f"{TRAIN} --steps nan": "--steps",
        f"{TRAIN} --batch-size 0": "`batch_size`",
        f"{TRAIN} --batch-size 100000000000": "`batch_size`",
        f"{TRAIN} --image-size -1": "`image_size`",
        f"{TRAIN} --image-size 100000": "`image_size`",
        f"{TRAIN} --image-size 64": "`image_size`",
        f"{TRAIN} --seed -1": "`seed`",
        f"{TRAIN} --trial-seed -1": "`trial_seed`",
        f"{TRAIN} --hparams-seed -1": "`hparams_seed`",
        f"{TRAIN} --holdout-fraction 0": "`holdout_fraction`",
        f"{TRAIN} --holdout-fraction nan": "`holdout_fraction`",
        f"{TRAIN} --holdout-fraction 1e-9": "holdout fraction",
        f"{TRAIN} --eval-every 0": "`eval_every`",
        f"{TRAIN} --checkpoint-every -3": "`checkpoint_every`",
        f"{TRAIN} --checkpoint-minutes -1": "`checkpoint_minutes`",
        f"{TRAIN} --precision half": "`precision`",
        f"{TRAIN} --precision fp16": "`precision`",
        f"{TRAIN} --snapshots 100000000000": "`snapshots`",
        f"{TRAIN} --classes-per-batch 99": "`classes_per_batch`",
        f"{TRAIN} --averaging swaa": "'swa'",
        f"{TRAIN} --freeze 1": "--freeze",
        f"{TRAIN} --freeze -1": "`freeze`",
        f"{TRAIN} --warmup-head -1": "`warmup_head`",
        f"{TRAIN} --algorithm sam+fish": "'sam+fish'",
        f"{TRAIN} --algorithm t3a+tent": "'t3a+tent'",
        f"{TRAIN} --algorithm tent": "layer norm",
        f"{TRAIN} --set test_batch_size=0": "test_batch_size",
        f"{TRAIN} --algorithm t3a --set t3a_k=-1": "`t3a_k`",
        f"{TRAIN} --lora -1": "`lora`",
        f"{TRAIN} --lora-alpha 2": "`lora_alpha`",
        f"{TRAIN} --lora 2 --no-freeze-bn": "`freeze_bn`",
        f"{TRAIN} --algorithm sma+erm": "'sam'",
        f"{TRAIN} --dropout 1": "`dropout`",
        f"{TRAIN} --head foo": "'foo'",
        f"{TRAIN} --keep some": "'some'",
        f"{TRAIN} --protocol dirty": "'dirty'",
        f"{TRAIN} --backbone resnet9999": "'resnet9999'",
        f"{TRAIN} --backbone resnet18": "`mlp`",
        f"{TRAIN} --pretrained": "--pretrained",
        f"{TRAIN} --pretrained --weights {{arrays}}": "--weights",
        f"{TRAIN} --weights nowhere.pt": "nowhere.pt",
        f"{TRAIN} --weights=": "--weights",
        f"{TRAIN} --backbone=": "--backbone",
        "--dataset= --algorithm erm --test-domain us --out {new}": "--dataset",
        f"{TRAIN} --weights {{odd}}/endless": "endless",
        f"{TRAIN} --weights {{odd}}/pipe": "pipe",
        f"{TRAIN} --weights {{odd}}/loop": "loop",
        f"{TRAIN} --weights {{images}}": "images",
        f"{TRAIN} --weights {{arrays}}": "scans.npz",
        f"{TRAIN} --device abacus": "'abacus'",
        f"{TRAIN} --device meta": "'meta'",
        f"{TRAIN} --device cuda:x": "'cuda:x'",
        f"{TRAIN} --device hpu:0": "'hpu:0'",
        f"{TRAIN} --set lr=1 --set lr=2": "--set",
        f"{TRAIN} --algorithm mixup --set alpha=1e-300": "`alpha`",
        "--dataset {images} --algorithm erm --test-domain art --backbone vit_tiny_patch16_224 --image-size 9 --steps 2 "
        "--quiet --out {new}": "image size",
        f"{TRAIN} --set lr=nan": "`lr`",
        f"{TRAIN} --set lr=-1": "`lr`",
        f"{TRAIN} --set lr=fast": "'fast'",
        f"{TRAIN} --set lr=1_0": "'1_0'",
        f"{TRAIN} --set lr=١": "'١'",
        f"{TRAIN} --set lr": "--set",
        f"{TRAIN} --set =3": "--set",
        f"{TRAIN} --set steps=3": "--steps",
        f"{TRAIN} --set lrr=1": "'lr'",
        f"{TRAIN} --algorithm Erm": "'erm'",
        f"{TRAIN} --task domain_adaptation": "--task",
        f"{TRAIN} --hparams_seed 3": "--hparams_seed",
        f"{TRAIN} --hparams {{{{lr": "--set",
        f"{TRAIN} --test_envs 0": "--test-domain",
        f"{TRAIN} --algorithm irm --set irm_lambda=3": "lam",
        f"{TRAIN} --bf16": "--bf16",
        "nowhere.toml": "nowhere.toml",
        "{odd}/pipe.npz": "pipe.npz",
        "{odd}/blank.csv": "blank.csv",
        "{odd}/empty": "spec.json",
        "{odd}/endless": "endless",
        f"{TRAIN} --set resnet_dropout=0.1": "--dropout",
        f"{TRAIN} --algorithm l2a_ot": "small_cnn",
        f"{TRAIN} --dataset RotateMNIST": "'rotated_mnist'",
        f"{TRAIN} --dataset PACS": "--data-root",
        f"{TRAIN} --dataset PACS --data-root /nowhere": "nowhere",
        f"{TRAIN} --dataset {{odd}}/pipe.npz": "pipe.npz",
        f"{TRAIN} --dataset {{odd}}/endless.npz": "endless.npz",
        f"{TRAIN} --dataset {{odd}}/loop": "loop",
        f"{TRAIN} --test-domain us": "us, us",
        f"{TRAIN} --test-domain mars": "'mars'",
        f"{TRAIN} --test-domain ct --test-domain mr": "source domain",
        f"{TRAIN} --log tensorbord": "'tensorboard'",
        f"{TRAIN} --out /proc/x": "--out",
        f"{TRAIN} --out {{arrays}}": "scans.npz",
        f"{TRAIN} --arm {'x' * 81}": "`arm`",
        f"{TRAIN} --set lr=1e400": "`lr`",
        f"{TRAIN} --checkpoint-minutes inf": "`checkpoint_minutes`",
        f"{TRAIN} --log tensorboard,wandb": "'tensorboard,wandb'",
        f"{TRAIN} --dataset {{odd}}/one_class.npz": "one_class",
        f"{TRAIN} --dataset {{odd}}/elsewhere.csv": "'nowhere.png'",
        f"{TRAIN} --dataset {{odd}}/pipe.csv": "pipe.csv",
    },
    "fit": {
        "--out {new}": "'DATA'",
        "--out {new} --from {model}": "--add-domain",
        "--out {new} --add-domain {arrays} --from {odd}/nowhere": "nowhere",
        "--out {new} --add-domain {arrays} --from {model}": "estimate",
        "--out {new} --add-domain {arrays} --from {model} --steps 3": "--steps",
        "{arrays} --heatmaps 3 --algorithm erm --out {new}": "--heatmaps",
        "{images} --window 9 --algorithm erm --quiet --out {new}": "`window`",
        "{arrays} --window 0:9 --algorithm erm --quiet --out {new}": "`window`",
        "": "'--out'",
        f"{FIT} --algorithm t3a": "t3a",
        f"{FIT} --min-confidence 2": "`min_confidence`",
        f"{FIT} --target-accuracy 0": "`target_accuracy`",
        f"{FIT} --metric f1": "`metric`",
        f"{FIT} --class-weight even": "`class_weight`",
        f"{FIT} --min-confidence nan": "`min_confidence`",
        f"{FIT} --steps 0": "`steps`",
        f"{FIT} --algorithm erms": "'erm'",
        f"{FIT} --device meta": "'meta'",
        f"{FIT} --keep none": "`keep`",
        f"{FIT} --set lr=0": "`lr`",
        f"{FIT} --set lr=1e30": "learning rate",
        f"{FIT} --out /proc/x": "--out",
        f"{FIT} --out {{odd}}": "odd",
        f"{FIT} --out {{model}} --seed 3": "model.json",
        f"{FIT} --averaging swad --averaging-start 3": "--averaging",
        f"{FIT} --frozen": "`frozen`",
        f"{FIT} --views 2": "`views`",
        f"{FIT} --views -1": "`views`",
        "{odd}/pipe.npz --out {new}": "pipe.npz",
        "{odd}/endless.npz --out {new}": "endless.npz",
        "{odd}/no_x.npz --out {new}": "no_x.npz",
        "{odd}/empty --out {new}": "empty",
        "nowhere/at/all --out {new}": "nowhere/at/all",
    },
    "soup": {
        "": "'RUNS'",
        "{erm}": "--out",
        "{erm} --out {new}": "runs",
        "{erm} {fgmix} --out {new} --how hot": "'hot'",
        "{erm} {fgmix} --out {new} --weights swad": "'swad'",
        "{erm} {fgmix} --out {odd}": "odd",
        "{erm} {fgmix} --out {new} --device abacus": "'abacus'",
        "{erm} {fgmix} --out {new} --dataset {images} --quiet": "--dataset",
        "{erm} {odd}/nowhere --out {new}": "nowhere",
        "{erm} {erm} --out {new}": "Found 1",
        "{erm} {fgmix} --trial-seed 9 --out {new}": "trial_seed 9",
        "{odd}/packed/joined.records.xz --out {new}": "joined.records.xz",
        "{erm} {odd}/records/high --out {new}": "high/run/record.json",
        "{images} --out {new}": "images",
    },
    "predict": {
        "": "'MODEL'",
        "{odd}/empty {arrays}": "empty",
        "{erm} {arrays}": "model.json",
        "{odd}/cut_model {arrays}": "cut_model",
        "{odd}/deep_model {arrays}": "deep_model",
        "{odd}/pipe_model {arrays}": "pipe_model",
        "{odd}/half_model {arrays}": "half_model",
        "{odd}/shape_model {arrays}": "input_shape",
        "{odd}/mean_model {images}": "spec.mean",
        "{model} {odd}/nowhere.npz": "nowhere.npz",
        "{model} {odd}/pipe.npz": "pipe.npz",
        "{model} {odd}/endless.npz": "endless.npz",
        "{model} {odd}/announced.npz": "announced.npz",
        "{model} {odd}/no_x.npz": "no_x.npz",
        "{model} {odd}/wide.npz": "(3, 5)",
        "{model} {odd}/rowless.npz": "rowless.npz",
        "{model} {odd}/text.npz": "<U1",
        "{model} {arrays} {arrays}": ".npz",
        "{model} {images}": ".npz",
        "{model} {arrays} --device meta": "'meta'",
        "{model} {arrays} --out {arrays}": "--out",
        "{model} {arrays} --out {odd}/nowhere/x.csv": "nowhere",
        "{image_model} {arrays}": "array",
        "{image_model} {odd}/nowhere.csv": "nowhere.csv",
        "{model} {arrays} --format xml": "'xml'",
        "{image_model} {odd}/empty": "empty",
    },
    "export": {
        "": "'MODEL'",
        "{odd}/empty": "empty",
        "{odd}/cut_model": "cut_model",
        "{model} --format tflite": "'tflite'",
        "{model} --out {new}.pt2": ".onnx",
        "{model} --out {odd}/nowhere/m.onnx": "nowhere",
        "{model} --format pt2 --out {odd}/taken.pt2": "--out",
    },
    "report": {
        "": "--from-domainbed",
        "{sweep} --baseline mars": "'mars'",
        "{sweep} --margin 0": "`margin`",
        "{sweep} --margin nan": "`margin`",
        "{odd}/nowhere": "nowhere",
        "{odd}/empty": "empty",
        "{arrays}": "scans.npz",
        "{odd}/loop": "loop",
        "{odd}/records/junk": "junk/run/record.json",
        "{odd}/records/deep": "deep/run/record.json",
        "{odd}/records/pipe": "pipe/run/record.json",
        "{odd}/records/schema": "schema/run/record.json",
        "{odd}/records/high": "high/run/record.json",
        "{odd}/records/nan": "nan/run/record.json",
        "{odd}/records/text": "text/run/record.json",
        "{odd}/records/number": "number/run/record.json",
        "{odd}/records/no_domains": "no_domains/run/record.json",
        "{odd}/records/no_domain": "no_domain/run/record.json",
        "{odd}/records/status": "status/run/record.json",
        "{odd}/records/step": "step/run/record.json",
        "{odd}/records/spec": "spec/run/record.json",
        "{odd}/records/nothing": "nothing/run/record.json",
        "{sweep} --format nope": "'nope'",
        "{sweep} --format html --out /proc/x.html": "x.html",
        "{sweep} --format html --out {odd}/mine.html": "mine.html",
        "{sweep} --format html --out {odd}/pipe": "pipe",
        "{sweep} --out {new}": "--out",
        "{sweep} --selection luck": "'luck'",
        "{sweep} --spread wide": "'wide'",
        "{sweep} --port 99": "--port",
        "{sweep} --serve --port -1": "port",
        "{sweep} --serve --port 99999": "port",
        "{sweep} --serve --format csv": "--format",
        "{sweep} --explain scans erm": "--explain",
        "{sweep} --explain scans ERN us": "'scans erm us'",
        "{sweep} --explain scans erm us --spread std": "--spread",
        "--from-domainbed {sweep}": "results.jsonl",
        "--from-domainbed {odd}/nowhere": "nowhere",
        "{sweep} {sweep}": "twice",
        "{sweep} --from-domainbed": "--from-domainbed",
        "{sweep} --title T": "--title",
        "{sweep} {arrays} --serve": "--serve",
        "{sweep} --to-domainbed {arrays}": "--to-domainbed",
        "{sweep} --pack {new}.txt": ".records.xz",
        "{sweep} --pack {new}/nowhere/a.records.xz": "nowhere",
        "{odd}/packed/cut.records.xz": "cut.records.xz",
        "{odd}/packed/deep.records.xz": "deep.records.xz",
        "{odd}/packed/empty.records.xz": "empty.records.xz",
        "{odd}/packed/foreign.records.xz": "foreign.records.xz",
        "{odd}/packed/joined.records.xz": "joined.records.xz",
        "{odd}/pipe": "pipe",
        "--from-domainbed {odd}/domainbed/high": "domainbed/high",
        "--from-domainbed {odd}/domainbed/infinite": "domainbed/infinite",
        "--from-domainbed {odd}/domainbed/deep": "domainbed/deep",
        "--from-domainbed {odd}/domainbed/number": "domainbed/number",
        "--from-domainbed {odd}/domainbed/far": "domainbed/far",
        "--from-domainbed {odd}/domainbed/pipe": "domainbed/pipe",
    },
    "status": {
        "": "'FOLDER'",
        "{odd}/nowhere": "nowhere",
        "{odd}/plans": "plans",
        "{odd}/escape": "escape",
        "{odd}/packed/joined.records.xz": "joined.records.xz",
        "{sweep} --every -1 --watch": "--every",
        "{sweep} --every nan --watch": "--every",
        "{sweep} --every 3": "--every",
    },
    "plan": {
        "": "--datasets",
        f"{PLAN} --spread nan": "`spread`",
        f"{PLAN} --spread 2 --spread-from {{sweep}}": "--spread-from",
        f"{PLAN} --spread-from {{odd}}/nowhere": "nowhere",
        f"{PLAN} --workers 0": "`workers`",
        f"{PLAN} --workers 100000000": "`workers`",
        f"{PLAN} --trials 0": "`trials`",
        f"{PLAN} --hparams 10000000000": "`hparams`",
        f"{PLAN} --with steps=3": "--with",
        f"{PLAN} --grid lr=1,nan": "`lr`",
        f"{PLAN} --grid lr={MANY} --grid weight_decay={MANY}": "1,002,001",
        f"{PLAN} --datasets {{odd}}/pipe.npz": "pipe.npz",
        f"{PLAN} --budget soon": "'soon'",
        f"{PLAN} --device meta": "'meta'",
        f"{PLAN} --out {{arrays}}": "scans.npz",
        "--preset nothing": "'nothing'",
    },
    "sweep": {
        "nowhere.toml --out {new}": "nowhere.toml",
        "{odd}/blank.csv --out {new}": "blank.csv",
        "": "--out",
        "--out {new}": "--datasets",
        f"{SWEEP} --out /proc/s": "--out",
        f"{SWEEP} --out {{arrays}}": "scans.npz",
        f"{SWEEP} --algorithms erms": "'erm'",
        f"{SWEEP} --datasets digitz": "'digits'",
        f"{SWEEP} --trials 1000000000000": "`trials`",
        f"{SWEEP} --workers 0": "`workers`",
        f"{SWEEP} --workers 1000000": "`workers`",
        f"{SWEEP} --device meta": "'meta'",
        f"{SWEEP} --device ,": "`device`",
        f"{SWEEP} --launcher moon": "'moon'",
        f"{SWEEP} --cpus 1": "--cpus",
        f"{SWEEP} --slurm a=b": "--slurm",
        f"{SWEEP} --launcher ray --workers 3": "--workers",
        f"{SWEEP} --launcher slurm --address x": "--address",
        f"{SWEEP} --launcher ray --gpus nan": "`gpus`",
        f"{SWEEP} --test-domains mars": "ct, mr, us",
        f"{SWEEP} --test-domains ,": "','",
        f"{SWEEP} --space moon": "'moon'",
        f"{SWEEP} --steps 0": "`steps`",
        f"{SWEEP} --dataset x": "--dataset",
        f"{SWEEP} --algorithms ERM CORAL": "--algorithms ERM,CORAL",
        f"{SWEEP} --weights nowhere": "nowhere",
        f"{SWEEP} --set gama=3": "'gama'",
        f"{SWEEP} --set lr=nan": "`lr`",
        f"{SWEEP} --grid lr=": "--grid",
        f"{SWEEP} --grid lr=1,,2": "--grid",
        f"{SWEEP} --grid lr=1 --set lr=2": "--set",
        f"{SWEEP} --steps 1e3": "--steps",
        f"{SWEEP} --log paper": "'paper'",
        f"{SWEEP} --preset paper-ablation": "--preset",
        "--preset paper-ablation --scale huge --out {new}": "'huge'",
    },
    "list": {
        "": "'KIND'",
        "wishes": "'wishes'",
        "algorithms ERM": "'erm'",
        "algorithms --family mixups": "'mixup'",
        "algorithms sam+": "'sam+'",
        "algorithms sam+dann": "'sam+dann'",
        "algorithms *+corall": "+coral'",
        "datasets --family mixup": "--family",
        "datasets nothing": "'nothing'",
        "backbones resnet9999": "'resnet9999'",
    },
    "doctor": {"please": "please"},
    "demo": {
        "--fast --steps 2": "--steps",
        "--steps 0 --out {new}": "`steps`",
        "--out {arrays}": "--out",
    },
    "data check": {
        "": "'IMAGES'",
        "{odd}/nowhere": "nowhere",
        "{arrays}": "scans.npz",
    },
    "data prepare": {
        "{odd}/nowhere": "nowhere",
        "{odd}/loop": "loop",
        "{odd}/pipe": "pipe",
        "{images} --image-size 8 --background black --quiet": "--background",
        "{images} --image-size 8 --cache {odd}/pipe --quiet": "pipe",
        "{images} --image-size 100000": "`image_size`",
        "{images} --image-size 0": "`image_size`",
    },
    "data download": {
        "MARS --data-root {new}": "'MARS'",
        "PACS": "--data-root",
        "PACS --data-root {arrays}": "--data-root",
        "PACS --data-root {new} --url http://[bad": "[bad",
        "VLCS --data-root {new} --hub": "--hub",
        "PACS --data-root {new} --url file:///etc/passwd": "--archive",
        "PACS --data-root {new} --archive {odd}/pipe": "pipe",
        "PACS --data-root {new} --archive {odd}/endless": "endless",
        "PACS --data-root {new} --archive {odd}/loop": "loop",
        "PACS --data-root {new} --archive {arrays} --sha256 zz": "'zz'",
        "PACS --data-root {new} --archive {odd}/empty": "empty",
        "PACS --data-root {new} --archive {odd}/escape.zip": "escape.zip",
        "PACS --data-root {new} --archive {odd}/lzma.zip": "lzma.zip",
        "PACS --data-root {new} --archive {odd}/bzip2.zip": "bzip2.zip",
        "PACS --data-root {new} --archive {arrays} --max-gb nan": "`max_gb`",
        "PACS --data-root {new} --archive {arrays} --max-gb 1e300": "`max_gb`",
    },
    "monitor": {
        "{odd}/nowhere {arrays}": "nowhere",
        "{model} {odd}/nowhere.npz": "nowhere.npz",
        "{model} {images}": "npz",
        "{image_model} {odd}/empty": "empty",
        "{model} {arrays} --baseline {odd}/nowhere.npz": "nowhere.npz",
    },
    "compare": {
        "{odd}/nowhere {model} {arrays}": "nowhere",
        "{model} {odd}/nowhere {arrays}": "nowhere",
        "{model} {model} {odd}/nowhere": "nowhere",
        "{model} {model} {images} --quiet": "shape",
        "{image_model} {image_model} {arrays}": "shape",
    },
    "plot weights": {
        "--out /proc/x": "--out",
    },
    "plot cd": {
        "{odd}/nowhere": "nowhere",
        "{sweep}": "4 methods",
        "{sweep} --dataset mars": "'mars'",
    },
    "plot results": {
        "{sweep} --baseline mars": "'mars'",
        "": "--from-domainbed",
        "{odd}/empty --kind curves": "empty",
        "{sweep} --kind sensitivity": "--grid",
        "{odd}/nowhere": "nowhere",
        "{sweep} --selection luck": "'luck'",
        "{odd}/nowhere.npz": "nowhere.npz",
        "{odd}/pipe.npz": "pipe.npz",
        "{odd}/endless.npz": "endless.npz",
        "{odd}/announced.npz": "announced.npz",
        "{arrays}": "scans.npz",
    },
    "plot tsne": {
        "{odd}/nowhere": "nowhere",
        "{erm} --samples 1": "--samples",
        "{sweep}": "sweep",
        "{erm}": "erm",
        "{fgmix} --samples 0": "--samples",
        "{fgmix} --mixed -3": "--mixed",
        "{fgmix} --mixed 1000000000000": "--mixed",
        "{fgmix} --seed -1": "`seed`",
        f"{{fgmix}} --seed {10**25}": "`seed`",
        "{fgmix} --which first": "'first'",
        "{fgmix} --model big": "'big'",
        "{fgmix} --model swad": "last_swad",
        "{fgmix} --dataset mars": "'mars'",
        "{fgmix} --device meta": "'meta'",
        "{odd}/cut_run": "cut_run",
        "{odd}/empty_run": "empty_run",
        "{odd}/text_run": "text_run",
        "{odd}/pipe_run": "pipe_run",
        "{odd}/pickled_run": "pickled_run",
        "{fgmix} --beside {erm} --mixed 3": "--mixed",
    },
    "plot flatness": {
        "": "'RUNS'",
        "{odd}/nowhere": "nowhere",
        "{erm} --scope moon": "'moon'",
        "{erm} --directions 0": "--directions",
    },
    "plot surface": {
        "": "'RUNS'",
        "{erm}": "us",
        "{erm} {erm} --resolution 2 --samples 3": "runs",
        f"{{erm}} {{fgmix}} --seed {10**25}": "`seed`",
        "{erm} {fgmix} --resolution 0": "--resolution",
        "{erm} {fgmix} --resolution 100000000": "--resolution",
    },
    "plot scores": {
        "{erm}": "erm",
        "{fgmix} --pairs 0": "--pairs",
        "{fgmix} --pairs 1000000000000": "--pairs",
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


def sweep(bench: Workbench, **changes: Any) -> Any:
    return package.Sweep(**{"datasets": bench.arrays, "algorithms": "erm", "trials": 1, "hparams": 1, **changes})


def load_algorithm(bench: Workbench, *args: Any, **options: Any) -> Any:
    return package.load_algorithm(package.read_record(bench.erm), *args, **options)


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
        (lambda _: spec(dataset=None), "`dataset`"),
        (lambda _: spec(algorithm=3), "`algorithm`"),
        (lambda _: spec(test_domains=(2,)), "'2'"),
        (lambda _: spec(test_domains=2), "`test_domains`"),
        (lambda _: spec(test_domains={"2": 1}), "`test_domains`"),
        (lambda _: spec(settings=[1]), "`settings`"),
        (lambda _: spec(settings={"steps": 3}), "`steps`"),
        (lambda _: spec(steps=True), "`steps`"),
        (lambda _: spec(steps=NAN), "`steps`"),
        (lambda _: spec(steps=10**5000), "`steps`"),
        (lambda _: spec(dropout=np.float32(NAN)), "`dropout`"),
        (lambda _: spec(compile="yes"), "`compile`"),
        (lambda _: spec(averaging=None), "`averaging`"),
        (lambda _: spec(arm="a\nb"), "`arm`"),
        (lambda _: spec(arm=" "), "`arm`"),
        (lambda _: spec(test_domains=[b"2"]), "`test_domains`"),
        (lambda _: spec(holdout_fraction="x"), "`holdout_fraction`"),
        (lambda _: spec(weights=b"x"), "`weights`"),
        (lambda _: spec(step=5), "'steps'"),
        (lambda _: spec(steps="\ud800"), "`steps`"),
        (lambda _: package.RunSpec("arrays", "erm", "2"), "by name"),  # type: ignore[misc]
        (lambda _: package.RunSpec(dataset="arrays"), "algorithm"),  # type: ignore[call-arg]
        (lambda _: to_spec(None, package.RunSpec), "`values`"),  # type: ignore[arg-type]
        (lambda _: to_spec({"dataset": "x"}, package.RunSpec), "algorithm"),
        (lambda _: to_spec({"nothing": 1}, package.RunSpec), "'nothing'"),
    ],
    "train": [
        (lambda _: package.train(None), "`spec`"),  # type: ignore[arg-type]
        (lambda _: package.train({"dataset": "digits"}), "`spec`"),  # type: ignore[arg-type]
        (lambda _: package.train(spec(), on_evaluation=3), "`on_evaluation`"),  # type: ignore[arg-type]
        (lambda _: train(out=None), "`out`"),
        (lambda _: train(out="a\0b"), "`out`"),
        (lambda _: train(dataset=X), "`dataset`"),
        (lambda b: train(out=b.root / "new", device=None), "`device`"),
        (lambda b: train(out=b.root / "new", device="meta"), "'meta'"),
        (lambda _: train(test_domains=("2", "9")), "'9'"),
        (lambda _: train(test_domains=["2", "2"]), "2, 2"),
        (lambda _: train(settings={"gamma": 3}), "'gamma'"),
        (lambda _: train(settings={"lr": NAN}), "`lr`"),
        (lambda _: train(settings={1: 2}), "'1'"),
        (lambda _: train(image_size=32), "`image_size`"),
    ],
    "Sweep": [
        (lambda _: package.Sweep(datasets=3, algorithms="erm"), "`datasets`"),  # type: ignore[arg-type]
        (lambda _: package.Sweep(datasets="digits", algorithms=["erm", None]), "`algorithms`"),  # type: ignore[arg-type, list-item]
        (lambda _: package.Sweep(datasets="digits", algorithms=[]), "an algorithm"),  # type: ignore[arg-type]
        (lambda b: sweep(b, common={"step": 3}).run("out"), "'steps'"),
        (lambda b: sweep(b, settings={"lamm": 3}).run("out"), "'lamm'"),
        (lambda b: sweep(b, algorithms="emr").run("out"), "'erm'"),
        (lambda b: sweep(b, test_domains="sea").run("out"), "sea"),
        (lambda b: sweep(b).run("out", launcher="cloud"), "'cloud'"),
        (lambda b: sweep(b).run("out", log=["paper"]), "'paper'"),
        (lambda b: sweep(b).run(None), "`out`"),  # type: ignore[arg-type]
        (lambda b: sweep(b, common={"steps": 0}).estimate(), "`steps`"),
    ],
    "read_runs": [
        (lambda _: package.read_runs(), "--from-domainbed"),
        (lambda _: package.read_runs(None), "`folders`"),  # type: ignore[arg-type]
        (lambda _: package.read_runs("a\0b"), "`folders`"),
        (lambda _: package.read_runs("nowhere"), "nowhere"),
        (lambda _: package.read_runs(from_domainbed=3), "`from_domainbed`"),  # type: ignore[arg-type]
        (lambda b: package.read_runs(b.sweep, b.sweep), "twice"),
        (lambda b: package.read_runs(b.sweep, where={"step": 3}), "'steps'"),
        (lambda b: package.read_runs(b.sweep, algorithms="emr"), "'erm'"),
        (lambda b: package.read_runs(b.sweep).group("step"), "'steps'"),
        (lambda b: package.read_runs(b.sweep).to_csv("/proc/x.csv"), "x.csv"),
    ],
    "read_status": [
        (lambda _: package.read_status(None), "`out`"),  # type: ignore[arg-type]
        (lambda _: package.read_status("nowhere"), "nowhere"),
    ],
    "select": [
        (lambda _: package.select(3), "`runs`"),  # type: ignore[arg-type]
        (lambda b: package.select([b.erm]), "`runs`"),  # type: ignore[list-item]
        (lambda b: package.select(package.read_runs(b.sweep), "luck"), "'luck'"),  # type: ignore[arg-type]
    ],
    "compare": [
        (lambda b: package.compare(package.read_runs(b.sweep)), "`selection`"),  # type: ignore[arg-type]
        (lambda b: package.compare(package.select(package.read_runs(b.sweep)), "mars"), "'mars'"),
        (lambda b: package.compare(package.select(package.read_runs(b.sweep)), margin=NAN), "`margin`"),
    ],
    "tabulate": [
        (lambda _: package.tabulate(None), "`runs`"),  # type: ignore[arg-type]
        (lambda b: package.tabulate(package.read_runs(b.sweep), spread="wide"), "'wide'"),  # type: ignore[arg-type]
        (lambda b: package.tabulate(package.read_runs(b.sweep), baseline="mars"), "'mars'"),
        (lambda b: package.tabulate(package.read_runs(b.sweep)).to_text("docx"), "'docx'"),
    ],
    "write_report": [
        (lambda _: package.write_report(3), "`runs`"),  # type: ignore[arg-type]
        (lambda b: package.write_report(package.read_record(b.erm)), "Give out"),
        (lambda b: package.write_report(package.read_runs(b.sweep), 3), "`out`"),  # type: ignore[arg-type]
    ],
    "plot": [
        (lambda b: package.plot("domain", package.read_runs(b.sweep)), "'domains'"),
        (lambda b: package.plot("tsne", package.read_runs(b.sweep)), "plot_models"),
        (lambda _: package.plot("domains", 3), "`runs`"),  # type: ignore[arg-type]
    ],
    "plot_models": [
        (lambda b: package.plot_models("domains", b.erm), "'domains'"),
        (lambda _: package.plot_models("tsne", []), "finished run"),
        (lambda _: package.plot_models("tsne", "nowhere"), "nowhere"),
        (lambda _: package.plot_models("tsne", 3), "`runs`"),  # type: ignore[arg-type]
    ],
    "read_record": [
        (lambda _: package.read_record(None), "`path`"),  # type: ignore[arg-type]
        (lambda _: package.read_record("a\0b"), "`path`"),
        (lambda _: package.read_record("nowhere"), "nowhere"),
        (lambda _: package.read_record("x" * 5000), "xxx"),
        (lambda b: package.read_record(b.sweep), "sweep"),
        (lambda b: package.read_record(b.arrays), "scans.npz"),
        (lambda _: package.read_record(3), "`path`"),  # type: ignore[arg-type]
        (lambda _: package.read_record("/dev/zero"), "/dev/zero"),
    ],
    "RunRecord": [
        (lambda b: package.read_record(b.erm).selected("swad"), "'swad'"),
        (lambda b: package.read_record(b.erm).test_accuracy("big"), "'big'"),  # type: ignore[arg-type]
    ],
    "load_algorithm": [
        (lambda _: package.load_algorithm(3), "`record`"),  # type: ignore[arg-type]
        (lambda b: load_algorithm(b, "big"), "'big'"),
        (lambda b: load_algorithm(b, dataset=X), "`dataset`"),
        (lambda b: load_algorithm(b, dataset="mars"), "'mars'"),
        (lambda b: load_algorithm(b, dataset=DATA), "scans-erm-us"),
        (lambda b: load_algorithm(b, device="meta"), "'meta'"),
    ],
    "load_model": [
        (lambda _: package.load_model(None), "`folder`"),  # type: ignore[arg-type]
        (lambda _: package.load_model("nowhere"), "nowhere"),
        (lambda _: package.load_model("\ud800"), "`folder`"),
        (lambda _: package.load_model("x" * 5000), "xxx"),
        (lambda _: package.load_model(b"x"), "`folder`"),  # type: ignore[arg-type]
        (lambda b: package.load_model(b.erm), "model.json"),
        (lambda b: package.load_model(b.model, "meta"), "'meta'"),
        (lambda b: package.load_model(b.model, None), "`device`"),  # type: ignore[arg-type]
    ],
    "Model": [
        (lambda b: package.load_model(b.model).predict(X[:, :3]), "(90, 3)"),
        (lambda b: package.load_model(b.model).predict(X * NAN), "row 0"),
        (lambda b: package.load_model(b.model).predict([["a"] * 4]), "<U1"),
        (lambda b: package.load_model(b.model).predict([[1, 2], [3]]), "shape"),
        (lambda b: package.load_model(b.model).predict(X, batch_size=0), "`batch_size`"),
        (lambda b: package.load_model(b.model).predict(np.ma.array(X, mask=X > 0)), "masked"),
        (lambda b: package.load_model(b.model).save(None), "`folder`"),  # type: ignore[arg-type]
        (lambda b: package.load_model(b.model).save(b.root), "workbench"),
        (lambda b: package.load_model(b.image_model).predict(X), "array"),
    ],
    "fit": [
        (lambda _: package.fit(None, "m"), "`dataset`"),  # type: ignore[arg-type]
        (lambda _: package.fit(X, "m"), "`dataset`"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, None), "`out`"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", algorithm="ERM"), "'erm'"),
        (lambda _: package.fit(DATA, "m", nothing=3), "'nothing'"),
        (lambda _: package.fit(DATA, "m", min_confidence="x"), "`min_confidence`"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", terms=3), "`terms`"),  # type: ignore[arg-type]
        (lambda _: package.fit(DATA, "m", terms=Terms(), licence="MIT"), "licence"),
        (lambda _: package.fit(DATA, "m", standardize=3), "`standardize`"),
        (lambda _: package.fit(DATA, "m", test_domains=("2",)), "('2',)"),
        (lambda b: package.fit(DATA, b.root, algorithm="erm"), "workbench"),
    ],
    "DomainGeneralizer": [  # scikit-learn checks its arrays, and says so in its own words
        (lambda _: estimator(algorithm="ERM").fit(X, Y, domains=D), "'erm'"),
        (lambda _: estimator(steps=0).fit(X, Y, domains=D), "`steps`"),
        (lambda _: estimator(settings=3).fit(X, Y, domains=D), "`settings`"),
        (lambda _: estimator(device="meta").fit(X, Y, domains=D), "'meta'"),
        (lambda _: estimator(metric="f1").fit(X, Y, domains=D), "`metric`"),
        (lambda _: estimator(class_weight="even").fit(X, Y, domains=D), "`class_weight`"),
        (lambda _: estimator(class_weight={7: 1}).fit(X, Y, domains=D), "`class_weight`"),
        (lambda _: estimator(class_weight=[1, 2, 3]).fit(X, Y, domains=D), "`class_weight`"),
        (lambda _: estimator(class_weight={0: "x"}).fit(X, Y, domains=D), "`class_weight`"),
        (lambda _: estimator().fit(X, np.array(["a", "b", "\ud800"])[Y], domains=D), "UTF-8"),
        (lambda _: estimator(standardize="x").fit(X, Y, domains=D), "`standardize`"),
        (lambda _: estimator().fit(X, Y, groups=D), "`groups`"),
        (lambda _: estimator().fit(X, Y, domains=D, sample_weight=[1]), "sample_weight"),
        (lambda _: estimator().fit(X, Y, domains=D[:5]), "`domains`"),
        (lambda _: estimator().fit(X, Y, domains=np.full(90, NAN)), "`domains`"),
        (lambda _: estimator().fit(X, np.zeros(90), domains=D), " y"),
        (lambda _: estimator().fit(X * NAN, Y, domains=D), "NaN"),
        (lambda _: estimator().fit(X, Y[:5], domains=D), "[90, 5]"),
        (lambda _: estimator().fit(None, Y, domains=D), "2D"),
        (lambda _: estimator().predict(X), "'fit'"),
        (lambda _: estimator().fit(X.astype(complex), Y, domains=D), "Complex"),
        (lambda _: estimator().fit(X, Y, domains=D, sample_weight=-np.ones(90)), "sample_weight"),
        (lambda _: estimator(batch_size=0).fit(X, Y, domains=D), "`batch_size`"),
        (lambda _: estimator(holdout_fraction=2).fit(X, Y, domains=D), "`holdout_fraction`"),
    ],
    "algorithms": [
        (lambda _: create("ERM"), "'erm'"),
        (lambda _: create(None), "None"),
        (lambda _: create(["erm"]), "'erm'"),
        (lambda _: create(featurizer=None), "`featurizer`"),
        (lambda _: create(classifier=lambda x: x), "`classifier`"),
        (lambda _: create(n_domains=0), "`n_domains`"),
        (lambda _: create(n_domains="3"), "`n_domains`"),
        (lambda _: create(lr=NAN), "`lr`"),
        (lambda _: create(gamma=1), "'gamma'"),
        (lambda _: create(featurizer=nn.Identity(), classifier=nn.Identity()), "featurizer"),
        (lambda _: package.algorithms.get("nope"), "'nope'"),
    ],
    "Algorithm": [
        (lambda _: create().step([]), "(x, y)"),
        (lambda _: create().step(None), "(x, y)"),
        (lambda _: create().step([(torch.randn(0, 4), CLASSES[:0])] * 2), "domain 0"),
        (lambda _: create("mixup").step([(torch.randn(6, 4), CLASSES[:5])] * 2), "domain 0"),
        (lambda _: create().step([torch.randn(6, 4)] * 2), "domain 0"),
        (lambda _: create().step([(X[:6], Y[:6])] * 2), "domain 0"),
        (lambda _: package.Algorithm(None, None, 0, None), "`featurizer`"),  # type: ignore[arg-type]
        (lambda _: package.Algorithm(nn.Linear(2, 2), nn.Linear(2, 2), 1, None), "`config`"),  # type: ignore[arg-type]
    ],
    "BaseConfig": [
        (lambda _: package.BaseConfig(lr=-1), "`lr`"),
        (lambda _: package.BaseConfig.of(nothing=1), "'nothing'"),
        (lambda _: package.BaseConfig.parse({"lr": "x"}), "'x'"),
        (lambda _: package.BaseConfig.parse("lr=3"), "`texts`"),  # type: ignore[arg-type]
    ],
    "register": [
        (lambda _: package.register(""), "`name`"),
        (lambda _: package.register("mine")(int), "'int'"),  # type: ignore[type-var]
        (lambda _: package.register("erm")(package.Algorithm), "'erm'"),
    ],
    "load_plugin": [
        (lambda _: package.load_plugin("no_such.py"), "no_such.py"),
        (lambda _: package.load_plugin(3), "`plugin`"),  # type: ignore[arg-type]
    ],
    "register_backbone": [
        (lambda _: package.register_backbone(""), "`name`"),
        (lambda _: package.register_backbone("small_cnn")(int), "'small_cnn'"),
    ],
    "testing": [(lambda _: package.testing.check_algorithm("nope"), "'nope'")],
    "FGMix": [
        (lambda _: package.FGMix(-1, 3), "`code_size`"),
        (lambda _: package.FGMix("8", 3), "`code_size`"),  # type: ignore[arg-type]
        (lambda _: package.FGMix(10**15, 3), "`code_size`"),
        (lambda _: package.FGMix(8, None), "`classifier`"),  # type: ignore[arg-type]
        (lambda _: package.FGMix(8, 3, gamma=float("inf")), "`gamma`"),
        (lambda _: package.FGMix(8, 3, lam=NAN), "`lam`"),
        (lambda _: package.FGMix(8, 10**12), "`classifier`"),
        (lambda _: package.FGMix(8, 3, n=10**12), "`n`"),
        (lambda _: package.FGMix(8, 3, directions=10**9), "`directions`"),
        (lambda _: package.FGMix(8, 3, domains_per_tuple=1), "`domains_per_tuple`"),
        (lambda _: package.FGMix(8, nn.Identity()), "classifier"),
        (lambda _: mix(z=Z[:, :3]), "(6, 3)"),
        (lambda _: mix(z=Z[:0]), "(0, 8)"),
        (lambda _: mix(z=None), "`z`"),
        (lambda _: mix(z=Z.to_sparse()), "`z`"),
        (lambda _: mix(y=CLASSES[:3]), "(3,)"),
        (lambda _: mix(y=CLASSES + 9), "9 to 10"),
        (lambda _: mix(domains=DOMAINS.float()), "torch.float32"),
        (lambda _: mix(classifier=nn.Linear(9, 3)), "width 9"),
    ],
    "data": [
        (lambda _: package.data.load(None), "`dataset`"),  # type: ignore[arg-type]
        (lambda _: package.data.load("digitz"), "'digits'"),
        (lambda _: package.data.load("digits", 3), "`options`"),  # type: ignore[arg-type]
        (lambda _: LoadOptions(root=3), "`root`"),  # type: ignore[arg-type]
        (lambda _: package.data.load("PACS", LoadOptions(root=Path("nowhere"))), "--data-root"),
        (lambda _: from_arrays(X, Y, D, name=3), "`name`"),  # type: ignore[arg-type]
        (lambda _: from_arrays(X, Y, D, classes=3), "`classes`"),  # type: ignore[arg-type]
        (lambda _: from_arrays(X, Y, D, classes="abc"), "`classes`"),
        (lambda _: from_arrays(X, np.array(["a", "b", "\ud800"])[Y], D), "UTF-8"),
        (lambda _: from_arrays(X, np.full(90, 2**70, dtype=object), D), "row 0"),
    ],
}


@dataclass(frozen=True)
class Case:
    """A bad input: words after a command or a call of a public name, and what the error must name."""

    of: str
    number: int
    names: str
    words: str = ""
    call: Call | None = None


CASES = [
    *(Case(of, i, name, words) for of, cases in COMMANDS.items() for i, (words, name) in enumerate(cases.items())),
    *(Case(of, i, name, call=call) for of, cases in PYTHON.items() for i, (call, name) in enumerate(cases)),
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
    for name, compression in (("lzma", zipfile.ZIP_LZMA), ("bzip2", zipfile.ZIP_BZIP2)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", compression) as archive:
            archive.writestr("photo/dog/1.jpg", bytes(1000))
        content = (folder / f"{name}.zip").read_bytes()
        (folder / f"{name}.zip").write_bytes(content[:60] + bytes(8) + content[68:])
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
    """What may be wrong within a manifest is in tests/data/test_bad_data.py."""
    (folder / "elsewhere.csv").write_text("path,label,domain\nnowhere.png,cat,art\n")
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
    contents = {
        "cut_run": (bench.fgmix / "last.pt").read_bytes()[:200],
        "empty_run": b"",
        "text_run": b"hello",
    }
    for name, content in contents.items():
        shutil.copytree(bench.fgmix, folder / name)
        (folder / name / "last.pt").write_bytes(content)
    shutil.copytree(bench.fgmix, folder / "pickled_run")  # sealed as ours, with an object that is no tensor
    write_tensors(folder / "pickled_run" / "last.pt", {"weight": Path("code that would run")})
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


def read_error(case: Case, bench: Workbench, odd: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error about a bad input, which must be all that happens."""
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
    error = read_error(case, bench, odd, tmp_path / "new", capsys)
    assert case.names in error
    assert "\n" not in error
    assert "Traceback" not in error


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
