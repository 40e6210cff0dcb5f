"""Models around training: how they are described, loaded, run and handed on. In the order in which to read them:

`checkpoints`     from a checkpoint file to a model: begin here
`model_configs/`  descriptions of models that open_clip does not have, in its format
`text_tower`      DistilBERT as a text tower of open_clip
`encoder`         a model as a function to features, at a precision of our choice; what clip_benchmark is given
`embeddings`      the same for the report: pictures and captions in, numpy out
`model_folder`    the body of `isogclr export`: a folder that open_clip and the Hugging Face tools load
"""
