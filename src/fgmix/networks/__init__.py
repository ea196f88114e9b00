"""Featurizers and classifiers: any timm model, and small networks of our own for CPUs."""

from fgmix.networks.build import build_classifier as build_classifier
from fgmix.networks.build import build_featurizer as build_featurizer
from fgmix.networks.featurizer import Featurizer as Featurizer
from fgmix.networks.names import backbones as backbones
from fgmix.networks.names import full_name as full_name
from fgmix.networks.registry import register_backbone as register_backbone
from fgmix.networks.stages import residual_blocks as residual_blocks
from fgmix.networks.stages import stages as stages
