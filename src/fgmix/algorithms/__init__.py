"""The methods, one per file. `names()` lists them, `create(name, …)` builds one."""

from fgmix.algorithms._base import Algorithm as Algorithm
from fgmix.algorithms._base import Batches as Batches
from fgmix.algorithms._config import BaseConfig as BaseConfig
from fgmix.algorithms._config import choice as choice
from fgmix.algorithms._config import log_uniform as log_uniform
from fgmix.algorithms._config import search as search
from fgmix.algorithms._config import setting as setting
from fgmix.algorithms._config import uniform as uniform
from fgmix.algorithms._registry import check_accumulation as check_accumulation
from fgmix.algorithms._registry import check_domains as check_domains
from fgmix.algorithms._registry import compositions as compositions
from fgmix.algorithms._registry import create as create
from fgmix.algorithms._registry import describe_code as describe_code
from fgmix.algorithms._registry import get as get
from fgmix.algorithms._registry import names as names
from fgmix.algorithms._registry import overview as overview
from fgmix.algorithms._registry import register as register
from fgmix.algorithms._task import Task as Task

# isort: split
# After the names above, which the methods' files import from here.

from fgmix.algorithms import adrmx as adrmx
from fgmix.algorithms import andmask as andmask
from fgmix.algorithms import arm as arm
from fgmix.algorithms import cad as cad
from fgmix.algorithms import causirl as causirl
from fgmix.algorithms import clip_zeroshot as clip_zeroshot
from fgmix.algorithms import clipood as clipood
from fgmix.algorithms import cnsn as cnsn
from fgmix.algorithms import coop as coop
from fgmix.algorithms import coral as coral
from fgmix.algorithms import dann as dann
from fgmix.algorithms import ddg as ddg
from fgmix.algorithms import dpl as dpl
from fgmix.algorithms import eqrm as eqrm
from fgmix.algorithms import erm as erm
from fgmix.algorithms import ermplusplus as ermplusplus
from fgmix.algorithms import fgmix as fgmix
from fgmix.algorithms import fish as fish
from fgmix.algorithms import fishr as fishr
from fgmix.algorithms import groupdro as groupdro
from fgmix.algorithms import ib as ib
from fgmix.algorithms import iga as iga
from fgmix.algorithms import irm as irm
from fgmix.algorithms import l2a_ot as l2a_ot
from fgmix.algorithms import manifold_mixup as manifold_mixup
from fgmix.algorithms import metamixup as metamixup
from fgmix.algorithms import miro as miro
from fgmix.algorithms import mixstyle as mixstyle
from fgmix.algorithms import mixup as mixup
from fgmix.algorithms import mldg as mldg
from fgmix.algorithms import mmd as mmd
from fgmix.algorithms import mtl as mtl
from fgmix.algorithms import pcgrad as pcgrad
from fgmix.algorithms import rdm as rdm
from fgmix.algorithms import ridg as ridg
from fgmix.algorithms import rsc as rsc
from fgmix.algorithms import sagm as sagm
from fgmix.algorithms import sagnet as sagnet
from fgmix.algorithms import sam as sam
from fgmix.algorithms import sandmask as sandmask
from fgmix.algorithms import sd as sd
from fgmix.algorithms import selfreg as selfreg
from fgmix.algorithms import t3a as t3a
from fgmix.algorithms import tent as tent
from fgmix.algorithms import transfer as transfer
from fgmix.algorithms import trm as trm
from fgmix.algorithms import urm as urm
from fgmix.algorithms import vrex as vrex

# isort: split
# After all methods are loaded.

from fgmix.records.source import ROOMS, keep_sources

keep_sources(ROOMS)
