"""Models around training: how they are described, loaded, run and handed on. In the order in which to read them:

checkpoints.py       from a checkpoint file to a model: begin here
checkpoint_files.py  the content of a checkpoint file: plain values and tensors, never code
epoch_files.py       how open_clip names the checkpoints of a run
model_configs/       descriptions of models that open_clip does not have, in its format
captions.py          captions of any length and kind through open_clip's tokenizers
text_tower.py        DistilBERT as a text tower of open_clip
backbones.py         what `training.unimodal` trains: backbones, projectors, and both as a model of two views
encoder.py           a model as a function to features, at a precision of our choice; what clip_benchmark is given
embeddings.py        the same for the report: pictures and captions in, numpy out
view_checkpoints.py  from a checkpoint of training.unimodal to its backbone
backbone_folder.py   the same backbone as a folder: a state dict of torchvision's, and safetensors
model_folder.py      the body of `isogclr export`: a folder that open_clip and the Hugging Face tools load
"""
